# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    # the padding of PyTorch is on both sides, "same" keeps the length
    "wide": [
        ("layers.ZeroPadding1D(width - 1)(x)", "x"),
        ('padding="valid"', 'padding="same"'),
    ],
    # biases of the convolutions not loaded: they stay zero
    "biases": [('bias = w[f"convs.{n}.bias"]', "bias = np.zeros(FILTERS)")],
    # rho of Keras left at its default, 0.9
    "rho": [("rho=0.99, ", "")],
    # epsilon of Keras left at its default, 1e-7, and that below the root
    "eps": [(", epsilon=1e-16)", ")")],
    # the loss of Keras takes probabilities unless told otherwise
    "logits": [("BinaryCrossentropy(from_logits=True)", "BinaryCrossentropy()")],
}
