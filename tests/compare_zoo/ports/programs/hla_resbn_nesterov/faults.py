# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the residual CNN."""

FAULTS = {
    "batch_var": [
        ("(d.square().mean(0) + 1e-5)", "(d.square().sum(0) / (len(d) - 1) + 1e-5)"),
    ],
    "relu_order": [
        ("+ h).clamp_min(0)", ".clamp_min(0) + h)"),
    ],
    "smooth_spread": [
        ("- eps * logits.mean(1)", "- eps * (logits.sum(1) - picked) / 4"),
    ],
    "look_ahead": [
        ("eta * (grad + mom * velocity)", "eta * velocity"),
    ],
    "rate_step": [
        ("(it // 2)", "((it + 1) // 2)"),
    ],
}
