# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the pair roj_fpn_detector."""

NEEDS = ["torchvision"]
FAULTS = {
    "bilinear_pyramid": [('scale_factor=2, mode="nearest")', 'scale_factor=2, mode="bilinear")')],
    "between_is_background": [("return index, fg, ~fg & (best >= 0.3)", "return index, fg, ~fg & (best >= 0.5)")],
    "alpha_swapped": [("torch.where(y == 1, 0.25, 0.75)", "torch.where(y == 1, 0.75, 0.25)")],
    "quality_target_attached": [("quality[fg], iou.detach()", "quality[fg], iou")],
    "bias_same_rate": [("lr = base * 2 if is_bias else base", "lr = base")],
}
