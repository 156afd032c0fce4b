# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the diagonal state-space model."""

FAULTS = {
    "lag_shift": [
        ("l = torch.arange(LEN, dtype=torch.float32)",
         "l = torch.arange(1, LEN + 1, dtype=torch.float32)"),
    ],
    "gelu_kind": [
        ("torch.sigmoid(1.5957691216057308 * (y + 0.044715 * y ** 3))", "torch.sigmoid(1.702 * y)"),
    ],
    "target_shift": [
        ("one_hot(ids[:, 1:], 30)", "one_hot(ids[:, :LEN], 30)"),
    ],
    "group_rate": [
        ("(2e-3, 0.0) if", "(8e-3, 0.0) if"),
    ],
    "poly_power": [
        ("poly = (1 - t / 6) ** 2", "poly = 1 - t / 6"),
    ],
}
