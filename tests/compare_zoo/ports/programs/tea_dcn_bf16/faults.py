# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "lossy": [("z = z.to(torch.float32)", "y = y.to(z.dtype)")],
    "gated": [(".float().softmax(1)", ".float().softmax(0)")],
    "crossed": [("share, x0 * u)", "share, x * u)")],
    "rowwise": [("g.square().sum(1) / E", "g.square().sum(1)")],
    "logged": [("(1 + counts).log()", "counts.clamp(min=1).log()")],
}
