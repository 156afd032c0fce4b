# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of speaker."""

FAULTS = {
    "window": [("np.cos(2 * np.pi * np.arange(FRAME) / FRAME)",
                "np.cos(2 * np.pi * np.arange(FRAME) / (FRAME - 1))")],
    "cmn": [("logs.mean(axis=1, keepdims=True)", "logs.mean(axis=2, keepdims=True)")],
    "swapped": [("torch.relu(y) * gain + shift", "torch.relu(y * gain + shift)")],
    "spread": [("second = (attention * (x - first[:, None]).square()).sum(1)",
                "second = (x - first[:, None]).square().mean(1)")],
    "cohort": [("nearest = nearest[:, : self.keep]", "nearest = nearest[:, -self.keep :]")],
}
