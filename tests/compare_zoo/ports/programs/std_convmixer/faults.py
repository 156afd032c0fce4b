# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "residual": [
        (
            'x + act_norm(depthwise(x, blk["depth"]), blk["depth_n"])',
            'act_norm(x + depthwise(x, blk["depth"]), blk["depth_n"])',
        ),
    ],
    "gelu": [("0.5 * x * (1 + torch.erf(x * 0.5**0.5))", "x * torch.sigmoid(1.702 * x)")],
    "variance": [("x.var((0, 1, 2), unbiased=False)", "x.var((0, 1, 2))")],
    "smoothing": [("alpha / 7)", "alpha / 6)")],
    "nesterov": [("w -= 0.2 * (g + 0.9 * v)", "w -= 0.2 * v")],
}
