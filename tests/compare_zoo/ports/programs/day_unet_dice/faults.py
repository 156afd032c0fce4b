# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "corners": [("align_corners=True", "align_corners=False")],
    "skip": [("torch.cat((skip, x), 1)", "torch.cat((x, skip), 1)")],
    "slope": [("torch.where(x > 0, x, 0.1 * x)", "torch.where(x > 0, x, 0.01 * x)")],
    "pooling": [("fn.max_pool2d(middle, 2)", "fn.avg_pool2d(middle, 2)")],
    "sigmoid": [("p = logits.sigmoid()", "p = logits")],
    "dice": [("(2 * overlap + smooth) / (sizes + smooth)", "(2 * overlap + smooth) / sizes")],
}
