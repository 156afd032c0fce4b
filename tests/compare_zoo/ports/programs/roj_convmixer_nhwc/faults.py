# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the pair roj_convmixer_nhwc."""

NEEDS = ["timm"]
FAULTS = {
    "norm_eps_of_keras": [("torch.rsqrt(second + 1e-5)", "torch.rsqrt(second + 1e-3)")],
    "flip_wrong_axis": [("torch.flip(image, dims=(2,))", "torch.flip(image, dims=(1,))")],
    "bce_smoothing_to_half": [("smoothing / CLASSES", "smoothing / 2")],
    "mean_square_from_zero": [("nu = tree_map(torch.ones_like, tree)", "nu = tree_map(torch.zeros_like, tree)")],
    "accumulation_not_averaged": [("sum(g) / len(g) for g", "sum(g) for g")],
}
