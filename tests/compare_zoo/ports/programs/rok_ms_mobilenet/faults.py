# SPDX-License-Identifier: Apache-2.0
"""Mistakes of the MindSpore migration of the tiny MobileNetV2."""

FRAMEWORK = "mindspore"

FAULTS = {
    "same_padding": [('pad_mode="pad", padding=k // 2, group=group', 'pad_mode="same", group=group')],
    "bn_momentum": [("eps=1e-5, momentum=0.9", "eps=1e-5, momentum=0.1")],
    "smoothing_off_value": [("Tensor(smooth / classes, ms.float32)", "Tensor(smooth / (classes - 1), ms.float32)")],
    "backbone_lr_lost": [('"params": backbone, "lr": 0.05, ', '"params": backbone, ')],
    "bn_not_frozen": [("cell[1].set_train(i < 2)", "cell[1].set_train(True)")],
}
