# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "eps": [("hidden_size, eps=1e-5", "hidden_size, eps=1e-3")],
    "theta": [("base=10000.0", "base=500000.0")],
    "rotation": [("torch.cat((-x2, x1)", "torch.cat((x2, -x1)")],
    "pairing": [
        (
            'weight.view(-1, HEAD_DIM // 2, 2, CONFIG["hidden"]).transpose(1, 2).reshape_as(weight)',
            "weight",
        )
    ],
    "groups": [
        ("k.repeat_interleave(heads // kv, dim=1)", "k.repeat(1, heads // kv, 1, 1)"),
        ("v.repeat_interleave(heads // kv, dim=1)", "v.repeat(1, heads // kv, 1, 1)"),
    ],
    "scale": [("is_causal=True", "is_causal=True, scale=1 / 8")],
    "causal": [(", is_causal=True", "")],
    "gate": [("gate, up = self", "up, gate = self")],
    "shift": [("labels=batch[:, 1:]", "labels=batch[:, :-1]")],
}
