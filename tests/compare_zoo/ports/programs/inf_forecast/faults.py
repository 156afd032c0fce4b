# SPDX-License-Identifier: Apache-2.0
"""Faults of the recurrent forecasting service."""
FAULTS = {
    "gates": [("i, f, g, o = torch.split(z, self.units, dim=1)",
               "i, f, o, g = torch.split(z, self.units, dim=1)")],
    "scaling": [("1.0 + history.abs().sum(1) / history.shape[1]",
                 "1.0 + history.abs().amax(1)")],
    "lag": [("seasonal = recent[0]", "seasonal = recent[1]")],
    "calendar": [("phases[(t + 1) % season]", "phases[t % season]")],
    "feedback": [("out = advance(mid, t + 1 + ahead)", "out = advance(value, t + 1 + ahead)")],
}
