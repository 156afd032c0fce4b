# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the DeepFM trainer."""

FAULTS = {
    "fm_half": [
        ("second = 0.5 * (fields", "second = (fields"),
    ],
    "sam_norm": [
        ("rho = 0.05 / (torch.cat([x.flatten() for x in g]).norm() + 1e-12)", "rho = 0.05"),
    ],
    "momentum_cycle": [
        ("cosine(0.95, 0.85, it)", "0.9"),
        ("cosine(0.85, 0.95, (it - 1) / 3)", "0.9"),
    ],
    "huber_delta": [
        ("torch.where(r < 0.8, 0.5 * r * r, 0.8 * r - 0.32)",
         "torch.where(r < 1.0, 0.5 * r * r, r - 0.5)"),
    ],
    "log_column": [
        ("np.log1p(", "np.log("),
    ],
}
