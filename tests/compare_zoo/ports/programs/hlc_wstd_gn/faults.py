# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the weight-standardised network."""

FAULTS = {
    "unbiased": [(".sum(0) * (len(k) / (len(k) - 1))", ".sum(0)")],
    "padding": [("(0, 0, 1, 1, 1, 1)", "(0, 0, 0, 2, 0, 2)")],
    "micro_mean": [("/ len(labels)", "/ len(yb)")],
    "nesterov": [("P[k] - lr * d - lr * 0.8 * speed[k]", "P[k] - lr * speed[k]")],
    "milestones": [("if step in (2, 4):", "if step in (1, 3):")],
}
