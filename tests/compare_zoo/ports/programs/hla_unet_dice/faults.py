# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the segmentation net."""

FAULTS = {
    "dice_slope": [
        ("p * (1 - p) * (num / den - 2 * mask)", "(num / den - 2 * mask)"),
    ],
    "edge_weight": [
        ("3 * edge * softplus(-u)", "edge * softplus(-u)"),
        ("3 * edge * (1 - q)", "edge * (1 - q)"),
    ],
    "norm_axis": [
        ("self.v.square().sum((1, 2, 3), keepdim=True).rsqrt()", "self.v.square().sum().rsqrt()"),
    ],
    "axis_swap": [
        ("(yy - geo[1] * 12)", "(yy - geo[0] * 12)"),
        ("(xx - geo[0] * 12)", "(xx - geo[1] * 12)"),
    ],
    "eps_inside": [
        ("(s.sqrt() + 1e-3)", "(s + 1e-3).sqrt()"),
    ],
}
