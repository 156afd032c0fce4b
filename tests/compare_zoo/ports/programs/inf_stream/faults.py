# SPDX-License-Identifier: Apache-2.0
"""Faults of the streaming recogniser."""
FAULTS = {
    "preemphasis": [("self.prev = samples[-1:]", "self.prev = torch.zeros(1)")],
    "floor": [("(energy + 1e-3).log()", "energy.clamp(min=1e-3).log()")],
    "glu": [("h[:, :dim] * h[:, dim:].sigmoid()", "h[:, :dim].sigmoid() * h[:, dim:]")],
    "leftcontext": [("line[len(line) - len(self.past):]", "h[:0].new_zeros(self.past.shape)")],
    "collapse": [("self.last = int(best[-1])", "self.last = 0")],
}
