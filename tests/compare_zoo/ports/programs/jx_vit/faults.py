# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "jax"
FAULTS = {
    "patch_order": [
        ("value.transpose(2, 3, 1, 0).reshape(-1, WIDTH)", "value.reshape(WIDTH, -1).T")
    ],
    "cls_place": [("x = x[:, 0]", "x = x.mean(axis=1)")],
    "qkv_bias": [
        (
            "value.reshape(3, HEADS, -1)  # <- qkv_bias",
            "value.reshape(HEADS, 3, -1).swapaxes(0, 1)  # <- qkv_bias",
        )
    ],
    "head_rate": [
        ('"head" if k[0] == "head" else "body"', '"head" if k[-1] == "head" else "body"')
    ],
    "smoothing": [
        (
            "optax.smooth_labels(jax.nn.one_hot(labels, CLASSES), 0.1)",
            "jax.nn.one_hot(labels, CLASSES)",
        )
    ],
}
