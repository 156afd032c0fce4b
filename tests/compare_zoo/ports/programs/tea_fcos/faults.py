# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "grouped": [("x.unflatten(3, (self.groups, -1))", "x.unflatten(3, (-1, self.groups))")],
    "centres": [("torch.arange(stride // 2, SIDE, stride)", "torch.arange(0, SIDE, stride)")],
    "smallest": [("areas.argsort(dim=1, stable=True)", "areas.argsort(dim=1, descending=True)")],
    "alpha": [("torch.where(goal > 0, 0.25, 0.75)", "torch.where(goal > 0, 0.25, 1.0)")],
    "velocity": [
        ("a.mul_(0.9).add_(g)", "a.mul_(0.9).add_(g, alpha=rate)"),
        ("v.sub_(rate * a)", "v.sub_(a)"),
    ],
}
