# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "quarter": [("x / HEAD_WIDTH**0.25", "x / HEAD_WIDTH**0.5")],
    "diagonal": [("sum(-1, keepdim=True) / 2", "sum(-1, keepdim=True)")],
    "largest": [("axes=(1, 3)", "axes=(3,)")],
    "denominator": [("both[..., :-1] / both[..., -1:]", "both[..., :-1] / time")],
    "residual": [("x = x + attention(y,", "x = y + attention(y,")],
    "counted": [("-wanted[hidden].mean()", "-(wanted * hidden).mean()")],
    "second": [("v.mul_(0.98).add_(0.02 * g * g)", "v.mul_(0.999).add_(0.001 * g * g)")],
}
