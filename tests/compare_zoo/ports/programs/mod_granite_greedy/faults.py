# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "positions": [("positions[:, -1:] + 1", "torch.full_like(ids, cache.used)")],
    "residual": [("x = x + c.residual_by * h  # <- residual", "x = x + h  # <- residual")],
    "scale": [("* c.attend_by", "* c.head_dim**-0.5")],
    "slot": [("    cache.used = end  # <- slot", "    cache.used = end - (time > 1)  # <- slot")],
    "groups": [
        (
            "k.repeat_interleave(share, 2), v.repeat_interleave(share, 2)",
            "k.repeat(1, 1, share, 1), v.repeat(1, 1, share, 1)",
        )
    ],
    "pads": [
        ("causal[None] & cache.visible[:, None, :end]", "causal[None].expand(len(ids), -1, -1)")
    ],
}
