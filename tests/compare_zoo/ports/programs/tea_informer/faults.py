# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "circular": [
        (
            "before, after = x.roll(1, 1), x.roll(-1, 1)",
            "before, after = F.pad(x, (0, 0, 1, -1)), F.pad(x, (0, 0, -1, 1))",
        )
    ],
    "measure": [("sampled.sum(3) / size", "sampled.mean(3)")],
    "lazy": [("torch.full_like(scores, 1 / size)", "torch.zeros_like(scores)")],
    "pooled": [("(0, 0, 1, 0), value=-math.inf)", "(0, 0, 0, 1), value=-math.inf)")],
    "spread": [("x, 1, correction=0, keepdim=True", "x, 1, keepdim=True")],
}
