# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    "ln_eps": [
        (
            "self.norm1 = layers.LayerNormalization(epsilon=1e-5)",
            "self.norm1 = layers.LayerNormalization()",
        ),
        (
            "self.norm2 = layers.LayerNormalization(epsilon=1e-5)",
            "self.norm2 = layers.LayerNormalization()",
        ),
    ],
    # the padding mask of PyTorch says what to hide, that of Keras what to see
    "mask": [
        ("attention_mask=keep[:, None, :]", "attention_mask=tf.logical_not(keep)[:, None, :]")
    ],
    # the layer of Keras does not scale, nor does the port
    "unscaled": [("x = self.tokens(ids) * math.sqrt(EMBED)", "x = self.tokens(ids)")],
    # heads in the wrong order of the axes
    "split": [
        (
            "matrix.T.reshape(EMBED, HEADS, HEAD)",
            "matrix.T.reshape(EMBED, HEAD, HEADS).transpose(0, 2, 1)",
        ),
        ("bias.reshape(HEADS, HEAD)", "bias.reshape(HEAD, HEADS).T"),
    ],
    "pool": [("tf.reduce_sum(x * weight, 1) / tf.reduce_sum(weight, 1)", "tf.reduce_mean(x, 1)")],
}
