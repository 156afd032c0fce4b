# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "mindspore"
FAULTS = {
    "padding": [
        (
            'nn.Conv2d(n_in, n_out, 3, stride, pad_mode="pad", padding=1)',
            "nn.Conv2d(n_in, n_out, 3, stride)",
        )
    ],
    "frozen": [("planes, eps=1e-5, use_batch_statistics=False", "planes, eps=1e-5")],
    "maxpool": [
        ('nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)', 'nn.MaxPool2d(3, 2, pad_mode="same")')
    ],
    "statistics": [
        (
            'if "bn" in layer or layer.endswith("downsample.1"):',
            'if layer == "bn1" and "running" in kind:\n            continue\n        if "bn" in layer or layer.endswith("downsample.1"):',
        )
    ],
    "decay": [
        (
            "nn.Momentum(groups, 0.05, 0.9)",
            "nn.Momentum(net.trainable_params(), 0.05, 0.9, weight_decay=5e-2)",
        )
    ],
}
