# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "dilation": [
        ("RATES, KINDS, VOID, TOTAL = (1, 2, 3)", "RATES, KINDS, VOID, TOTAL = (2, 3, 4)")
    ],
    "pooling": [("x.mean((2, 3), keepdim=True)", "x.amax((2, 3), keepdim=True)")],
    "concat": [
        (
            "views = [self.point(x), *(branch(x) for branch in self.atrous), scene]",
            "views = [scene, self.point(x), *(branch(x) for branch in self.atrous)]",
        )
    ],
    "corners": [
        (
            "((torch.arange(large) + 0.5) * small / large - 0.5).clamp(0, small - 1)",
            "torch.arange(large) * (small - 1) / (large - 1)",
        )
    ],
    "ignored": [("(picked * known).sum() / known.sum()", "(picked * known).mean()")],
    "poly": [("(1 - step / TOTAL) ** 0.9", "(1 - (step / TOTAL) ** 0.9)")],
    "decay": [("p.grad + decay * p", "p.grad")],
    "deviation": [("(pictures - mean) / deviation", "pictures - mean")],
}
