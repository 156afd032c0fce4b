# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "turned": [("value[:, 0].permute(1, 2, 0)", "value[:, 0].permute(2, 1, 0)")],
    "rescaled": [("(draws >= self.drop) / (1 - self.drop)", "(draws >= self.drop).float()")],
    "momenta": [("BETAS = (0.9, 0.95)", "BETAS = (0.95, 0.9)")],
    "mixed": [
        (
            "soft = onehot * lam + onehot.flip(0) * (1 - lam)",
            "soft = onehot.flip(0) * lam + onehot * (1 - lam)",
        )
    ],
    "average": [("0.6 * average + 0.4 * flat", "0.4 * average + 0.6 * flat")],
}
