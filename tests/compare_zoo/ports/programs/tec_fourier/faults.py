# SPDX-License-Identifier: Apache-2.0
"""Faults for the neural operator."""

FAULTS = {
    "mode_count": [
        ("FWD[:, :, : OP.modes], x)", "FWD * (torch.arange(OP.modes) < OP.modes - 1), x)")
    ],
    "one_sided": [("torch.where(k > 0, 2.0, 1.0) / n", "torch.full_like(k, 2.0 / n)")],
    "coordinate_ends": [
        ("torch.arange(OP.grid) / OP.grid  # <- coord", "torch.linspace(0, 1, OP.grid)  # <- coord")
    ],
    "relative_reduction": [
        (
            "((pred - true) ** 2).sum(1) / (true**2).sum(1)",
            "((pred - true) ** 2).sum() / (true ** 2).sum()",
        )
    ],
    "belief": [("surprise = g - mom[k]", "surprise = g")],
}
