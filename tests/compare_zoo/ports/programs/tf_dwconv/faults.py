# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    # "same" at stride 2 pads on the right and below only
    "same": [
        ("x = self.pad(x)  # <- same\n", "x = tf.identity(x)  # <- same\n"),
        ('3, 2, padding="valid"', '3, 2, padding="same"'),
    ],
    # the channels of the depthwise kernel taken for multiplier first
    "multiplier": [
        (
            "depth.reshape(STEM, MULTIPLIER, 3, 3).transpose(2, 3, 0, 1)",
            "depth.reshape(MULTIPLIER, STEM, 3, 3).transpose(2, 3, 1, 0)",
        )
    ],
    # the moving variance of one norm left at 1
    "stats": [('    model.norm2.moving_variance.assign(w["norm2.running_var"])  # <- stats\n', "")],
    # the old hard sigmoid of Keras
    "slope": [("s / 6.0 + 0.5", "0.2 * s + 0.5")],
    # the statistics of the batch at evaluation
    "batch_stats": [("model(images, training=False)", "model(images, training=True)")],
}
