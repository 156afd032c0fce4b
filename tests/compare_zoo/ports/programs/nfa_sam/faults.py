# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the tabular regression with sharpness-aware minimisation."""

FAULTS = {
    "ln_variance": [
        ("unbiased=False",
         "unbiased=True"),
    ],
    "huber_scale": [
        ("(0.5 * small ** 2 + delta * (r - small)).mean()",
         "(0.5 * small ** 2 / delta + (r - small)).mean()"),
    ],
    "no_restore": [
        ("theta, st = adamw(g_up, st, theta)",
         "theta, st = adamw(g_up, st, theta + rho * g / g.norm())"),
    ],
    "weight_decay": [
        ("theta - lr * (direction + wd * theta)",
         "theta - lr * direction"),
    ],
    "tail_start": [
        ("if step > 1:",
         "if step > 2:"),
    ],
}
