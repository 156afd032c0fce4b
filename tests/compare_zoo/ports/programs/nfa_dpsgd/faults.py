# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the private training of a small image net."""

FAULTS = {
    "smoothing": [
        ("0.1 / 5",
         "0.1 / 4"),
    ],
    "leaky_slope": [
        ("0.1 * x)",
         "0.01 * x)"),
    ],
    "by_leaf": [
        ("norms = sum(g.reshape(N, -1).square().sum(1) for g in per_example.values()).sqrt()",
         "norms = {k: g.reshape(N, -1).norm(dim=1) for k, g in per_example.items()}"),
        ("factor = (CLIP / (norms + 1e-6)).clamp(max=1.0)",
         "factor = {k: (CLIP / (n + 1e-6)).clamp(max=1.0) for k, n in norms.items()}"),
        ("factor, g)",
         "factor[k], g)"),
    ],
    "dampening_lost": [
        ("0.8 * buf[k] + 0.9 * g[k]",
         "0.8 * buf[k] + g[k]"),
    ],
    "unfreeze_late": [
        ("if step < 2 else",
         "if step <= 2 else"),
    ],
}
