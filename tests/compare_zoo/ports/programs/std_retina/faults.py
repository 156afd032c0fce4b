# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "upsample": [
        (
            "return x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)",
            "return x.repeat(1, 1, 2, 2)",
        )
    ],
    "anchors": [('conv(kind + ".pred", t).movedim(1, -1)', 'conv(kind + ".pred", t)')],
    "focus": [
        (
            "modulate = (1 - log_pt.exp()).square()",
            "modulate = (1 - log_pt.exp()).square().detach()",
        )
    ],
    "momentum": [
        ("buffers[k].mul_(0.9).add_(w.grad)", "buffers[k].mul_(0.9).add_(w.grad, alpha=0.1)")
    ],
    "huber": [("(near * (d - 0.5 * near) / beta).sum()", "(near * (d - 0.5 * near)).sum()")],
}
