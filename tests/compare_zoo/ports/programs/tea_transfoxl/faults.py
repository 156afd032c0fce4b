# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "r_bias": [('old["r_r_bias"].reshape', 'old["r_w_bias"].reshape')],
    "distance": [
        (
            "torch.arange(T)[:, None] + M - torch.arange(M + T)[None]",
            "torch.arange(T)[:, None] + M - 1 - torch.arange(M + T)[None]",
        ),
        ("VISIBLE_AHEAD = DISTANCE >= 0", "VISIBLE_AHEAD = DISTANCE >= -1"),
    ],
    "late_memory": [("before.detach()", "x.detach()")],
    "clip": [
        ("torch.sqrt(sum(g.square().sum() for g in grads))", "max(g.norm() for g in grads)"),
    ],
    "accumulator": [("torch.zeros_like(t) for k", "torch.full_like(t, 0.1) for k")],
}
