# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "sin_cos": [("(phase.sin(), phase.cos())", "(phase.cos(), phase.sin())")],
    "group_span": [
        ("F.layer_norm(parts, parts.shape[2:])", "F.layer_norm(parts, parts.shape[3:])"),
    ],
    "beta_schedule": [
        (
            "beta = torch.linspace(1e-3, 0.06, N_STEPS)",
            "beta = torch.linspace(1e-3**0.5, 0.06**0.5, N_STEPS) ** 2",
        )
    ],
    "ema_late": [("decay = 0.8", "decay = min(0.8, (1 + n) / (10 + n))")],
    "ddim_previous": [
        ("else signal[t - 30]", "else signal[t - 1]"),
        ("else sigma[t - 30]", "else sigma[t - 1]"),
    ],
}
