# SPDX-License-Identifier: Apache-2.0
"""Faults of the BEiT port."""

NEEDS = ["transformers"]
FAULTS = {
    "bias_transposed": [
        ("(ya - yb + grid - 1) * span + (xa - xb + grid - 1)", "(yb - ya + grid - 1) * span + (xb - xa + grid - 1)")],
    "pool_with_cls": [("x[:, 1:].mean(1)", "x.mean(1)")],
    "smoothing_k_minus_1": [("+ smooth / classes", "+ smooth / (classes - 1)")],
    "nesterov_lost": [("(g + 0.9 * velocity[name])", "velocity[name]")],
    "ema_first_copy": [("keep = 0.8 if iteration > 0 else 0.0", "keep = 0.8")],
}
