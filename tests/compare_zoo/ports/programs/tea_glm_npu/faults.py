# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "permuted": [('new[f"{i}.k.{kind}"] = for_halves(k)', 'new[f"{i}.k.{kind}"] = k')],
    "groups": [
        ("key.repeat_interleave(N // KV, dim=1)", "key.repeat(1, N // KV, 1)"),
        ("value.repeat_interleave(N // KV, dim=1)", "value.repeat(1, N // KV, 1)"),
    ],
    "prefix": [("hidden[:, :prefix] = 0.0", "hidden[:, : prefix - 1] = 0.0")],
    "counted": [("following[: prefix - 1] = -1", "following[:prefix] = -1")],
    "decayed": [('not (k == "norms" or k.endswith("bias"))', "start[k].dim() > 1")],
}
