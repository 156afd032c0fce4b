# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "mindspore"
FAULTS = {
    "slope": [("nn.LeakyReLU(alpha=0.01)", "nn.LeakyReLU()")],
    "up_bias": [
        (
            'stride=2, pad_mode="pad", padding=1, has_bias=True',
            'stride=2, pad_mode="pad", padding=1',
        )
    ],
    "concat": [("ops.cat((skip, x), axis=1)", "ops.cat((x, skip), axis=1)")],
    "lr_step": [
        (
            "nn.piecewise_constant_lr([2, 4], [5e-3, 5e-4])",
            "nn.piecewise_constant_lr([1, 4], [5e-3, 5e-4])",
        )
    ],
    "pos_weight": [
        ("nn.BCEWithLogitsLoss(pos_weight=ms.Tensor([3.0], ms.float32))", "nn.BCEWithLogitsLoss()")
    ],
}
