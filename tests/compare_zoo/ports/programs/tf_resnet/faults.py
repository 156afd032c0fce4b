# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    # "same" at stride 2 pads on the right and below only
    "same": [
        (
            "self.pad(tf.nn.relu(self.norm1(x, training=training)))",
            "tf.nn.relu(self.norm1(x, training=training))",
        ),
        ('stride, padding="valid"', 'stride, padding="same"'),
    ],
    # SAME: other windows at stride 2, and the border is left out of the count
    "counted": [
        ("x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])", "x = tf.convert_to_tensor(x)"),
        ('stride, padding="VALID"', 'stride, padding="SAME"'),
    ],
    # the input of the last layer flattened from h, w, c with weights for c, h, w
    "flatten": [(".reshape(CLASSES, 10, 3, 3).transpose(2, 3, 1, 0)", ".T")],
    "nesterov": [(", nesterov=True", "")],
    # decay on the biases and the norms too
    "decay_all": [("g + 0.05 * v if len(v.shape) > 1 else g for", "g + 0.05 * v for")],
}
