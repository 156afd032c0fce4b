# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "cell": [('torch.sigmoid(pre["o"]) * torch.tanh(c), c', 'torch.sigmoid(pre["o"]) * c, c')],
    "reverse": [
        ("h = torch.where(on, h2, h)", "h = h2"),
        ("c = torch.where(on, c2, c)", "c = c2"),
    ],
    "reduction": [("each.sum() / live.sum()", "(each.sum(1) / live.sum(1)).mean()")],
    "clip": [
        (
            "sum(p.grad.square().sum() for p in params.values())",
            "max(p.grad.square().sum() for p in params.values())",
        )
    ],
    "rms": [("(square[name].sqrt() + eps)", "(square[name] + eps).sqrt()")],
}
