# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of ssm."""

FAULTS = {
    "hold": [("(self.decay - 1) / pole", "step * torch.ones_like(pole)")],
    "conjugate": [("y = 2 * (self.readout", "y = (self.readout")],
    "skip": [("y = y + self.feed * u", "y = y + self.feed * x")],
    "carry": [("            cell.reset(signal.shape[0])",
               "            cell.state is None and cell.reset(signal.shape[0])")],
    "pooling": [("running = running + (h - running) / (t + 1)", "running = h")],
}
