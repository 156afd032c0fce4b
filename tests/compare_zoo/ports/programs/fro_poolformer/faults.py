# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "padding": [("padding=[2, 1, 1]", "padding=[3, 1, 1]")],
    "axes": [("images.permute(0, 3, 1, 2)", "images.permute(0, 3, 2, 1)")],
    "layer_scale": [('f"layer_scale_{n}"', 'f"gamma_{n}"')],
    "smoothing": [("label_smoothing=0.1", "")],
    "warmup": [("(n + 1) / 3", "n / 3")],
}
