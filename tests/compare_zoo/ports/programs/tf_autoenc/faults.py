# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    # "same" crops the other border
    "cropped": [
        ('WIDE, 3, 2, padding="valid"', 'WIDE, 3, 2, padding="same"'),
        ("    h = layers.Cropping2D(((1, 0), (1, 0)))(h)  # <- cropped\n", ""),
    ],
    # in and out swapped in the kernel of the transposed convolution
    "channels": [("kernel.transpose(2, 3, 1, 0)", "kernel.transpose(2, 3, 0, 1)")],
    # one slope not loaded: that of Keras begins at 0
    "alpha": [('for name in ("act1", "act2")', 'for name in ("act1",)')],
    # a custom loop forgets the losses of the layers
    "sparsity": [("loss = loss + tf.add_n(model.losses)", "loss = tf.identity(loss)")],
    # the default of UpSampling2D
    "nearest": [(', interpolation="bilinear"', "")],
}
