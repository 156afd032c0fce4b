# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "kernel_layout": [(".permute(2, 3, 1, 0)", ".permute(3, 2, 1, 0)")],
    "bn_momentum": [("self.momentum = stride, 0.97", "self.momentum = stride, 0.03")],
    "pool_pad": [
        (
            'torch.full_like(x.narrow(dim, 0, 1), float("-inf"))',
            "torch.zeros_like(x.narrow(dim, 0, 1))",
        )
    ],
    "grid_xy": [("shift = torch.tensor([col, row])", "shift = torch.tensor([row, col])")],
    "soft_goal": [("= overlap.item()", "= 1.0")],
}
