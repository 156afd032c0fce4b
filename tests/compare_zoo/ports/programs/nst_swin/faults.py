# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of swin."""

FAULTS = {
    "shift_mask": [("2 * (r >= GRID) + (c >= GRID)", "int(c >= GRID)")],
    "bias_index": [("dr = r[:, None] - r[None]", "dr = r[None] - r[:, None]")],
    "merge_order": [("quad.permute(0, 1, 3, 4, 2, 5)", "quad.permute(0, 1, 3, 2, 4, 5)")],
    "smoothing": [("torch.full_like(logp, 0.1 / CLASSES)", "torch.full_like(logp, 0.1 / (CLASSES - 1))")],
    "nesterov": [("LR * (g + MU * velocity[k])", "LR * velocity[k]")],
}
