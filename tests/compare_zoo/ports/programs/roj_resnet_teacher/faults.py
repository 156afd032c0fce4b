# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the pair roj_resnet_teacher."""

NEEDS = ["torchvision"]
FAULTS = {
    "channel_order": [
        (
            "yield ((hwc - RGB_MEAN) / RGB_STD).permute",
            "yield ((hwc - RGB_MEAN.flip(0)) / RGB_STD.flip(0)).permute",
        ),
    ],
    "maxpool_padding": [("F.max_pool2d(x, 3, 2, 1)", "F.max_pool2d(x, 3, 2)")],
    "biased_running_var": [("lerp_(var * count / (count - 1), BN_MOMENTUM)", "lerp_(var, BN_MOMENTUM)")],
    "smoothing_over_others": [
        ("torch.full((len(y), K), EPS / K)", "torch.full((len(y), K), EPS / (K - 1))"),
        ("1 - EPS + EPS / K)", "1 - EPS)"),
    ],
    "decay_everything": [("if p.dim() > 1:", "if p.requires_grad:")],
}
