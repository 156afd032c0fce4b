# SPDX-License-Identifier: Apache-2.0
"""Faults of the diffusion step."""

FAULTS = {
    "freq_denominator": [("(-torch.arange(n) / n)", "(-torch.arange(n) / (n - 1))")],
    "beta_table": [("torch.linspace(1e-3, 0.05, STEPS, dtype=torch.float64)",
                    "torch.linspace(1e-3 ** 0.5, 0.05 ** 0.5, STEPS, dtype=torch.float64) ** 2")],
    "film_unit": [("h = h + h * gamma + beta", "h = h * gamma + beta")],
    "null_slot": [("label = (label + 1) * keep", "label = label * keep")],
    "coupled_decay": [("pull = DECAY * p.detach()", "g = g + DECAY * p.detach()"),
                      ("(move + pull)", "move")],
}
