# SPDX-License-Identifier: Apache-2.0
"""Five porting mistakes for the GRU with its own cell."""

FAULTS = {
    # the reset gate works before the matrix, as in the paper and in old Keras
    "reset_before": [("inner = r * (h @ self.uc + self.dc)", "inner = (r * h) @ self.uc + self.dc")],
    # the whole time axis is turned, with the padding in front
    "reversed_with_padding": [("index = torch.where(steps < lengths, lengths - 1 - steps, steps)",
                               "index = (x.shape[0] - 1 - steps).expand(-1, x.shape[1])")],
    # no gradient goes back through time
    "state_detached": [("torch.where(alive, cell(x, h), h)", "torch.where(alive, cell(x, h.detach()), h)")],
    # the weighted sum is divided by the number of rows
    "weighted_mean": [("-(weight * picked).sum() / weight.sum()", "-(weight * picked).mean()")],
    # the decay of the mean square is that of Keras
    "rms_alpha": [("rho=0.99, eps=1e-6", "rho=0.9, eps=1e-6")],
}
