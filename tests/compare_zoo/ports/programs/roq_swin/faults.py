# SPDX-License-Identifier: Apache-2.0
"""Faults of the Swin port."""

NEEDS = ["torchvision"]
FAULTS = {
    "shift_mask": [("bias = bias.masked_fill(~meet[:, None], -100.0) if shift else bias", "bias = bias.unsqueeze(0)")],
    "bias_index": [("ij.unsqueeze(1) - ij.unsqueeze(0)", "ij.unsqueeze(0) - ij.unsqueeze(1)")],
    "merge_order": [("grid.permute(0, 1, 3, 4, 2, 5)", "grid.permute(0, 1, 3, 2, 4, 5)")],
    "smoothing_share": [("soft.scatter_(1, y[:, None], 1 - s + s / logits.size(1))",
                         "soft.scatter_(1, y[:, None], 1 - s)")],
    "nesterov_form": [("ahead = torch._foreach_add(grads, velocity, alpha=0.9)", "ahead = velocity")],
}
