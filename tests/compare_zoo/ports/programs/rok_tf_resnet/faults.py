# SPDX-License-Identifier: Apache-2.0
"""Mistakes of the Keras migration of the fine-tuned ResNet."""

FRAMEWORK = "tensorflow"

FAULTS = {
    "bn_epsilon": [("momentum=0.9, epsilon=1e-5, name=name", "momentum=0.9, name=name")],
    "same_padding": [
        ("        x = layers.ZeroPadding2D(1)(x)  # <- same_padding\n", ""),
        ('padding="valid", use_bias=False', 'padding="same", use_bias=False')],
    "stem_bn_trains": [("frozen.trainable = False", "frozen.trainable = True")],
    "no_nesterov": [("momentum=0.9, nesterov=True", "momentum=0.9")],
    "l2_twice": [("tf.nn.l2_loss(v) for v", "tf.reduce_sum(tf.square(v)) for v")],
}
