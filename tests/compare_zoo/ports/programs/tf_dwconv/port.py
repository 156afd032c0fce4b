# SPDX-License-Identifier: Apache-2.0
"""The depthwise-separable net in Keras, channels last: evaluation."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

CLASSES, BATCH, SIZE, STEM, MULTIPLIER = 5, 4, 16, 6, 2
MIDDLE = STEM * MULTIPLIER


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.pad = layers.ZeroPadding2D(1)  # <- same
        self.stem = layers.Conv2D(STEM, 3, 2, use_bias=False)
        self.norm1 = layers.BatchNormalization(epsilon=1e-5)  # <- batch_stats
        self.depth = layers.DepthwiseConv2D(
            3, 2, padding="valid", depth_multiplier=MULTIPLIER, use_bias=False
        )  # <- same multiplier
        self.norm2 = layers.BatchNormalization(epsilon=1e-5)  # <- stats batch_stats
        self.squeeze = layers.Dense(4, activation="relu")
        self.excite = layers.Dense(MIDDLE)
        self.point = layers.Conv2D(10, 1)
        self.pool = layers.GlobalAveragePooling2D()
        self.head = layers.Dense(CLASSES)

    def call(self, x, training=False):
        x = self.stem(self.pad(x))
        x = self.norm1(x, training=training)  # <- batch_stats
        x = keras.activations.hard_silu(x)
        x = self.pad(x)  # <- same
        x = self.depth(x)  # <- same multiplier
        x = tf.nn.relu6(self.norm2(x, training=training))  # <- stats batch_stats
        s = self.excite(self.squeeze(self.pool(x)))
        gate = tf.clip_by_value(s / 6.0 + 0.5, 0.0, 1.0)  # <- slope
        x = x * gate[:, None, None, :]
        x = tf.nn.relu6(self.point(x))
        return self.head(self.pool(x))


def load(model, path):
    w = np.load(path)
    model.stem.set_weights([w["stem.weight"].transpose(2, 3, 1, 0)])
    depth = w["depth.weight"]  # STEM * MULTIPLIER, 1, height, width
    depth = depth.reshape(STEM, MULTIPLIER, 3, 3).transpose(2, 3, 0, 1)  # <- multiplier
    model.depth.set_weights([depth])  # <- multiplier
    model.norm1.gamma.assign(w["norm1.weight"])
    model.norm1.beta.assign(w["norm1.bias"])
    model.norm1.moving_mean.assign(w["norm1.running_mean"])
    model.norm1.moving_variance.assign(w["norm1.running_var"])
    model.norm2.gamma.assign(w["norm2.weight"])
    model.norm2.beta.assign(w["norm2.bias"])
    model.norm2.moving_mean.assign(w["norm2.running_mean"])  # <- stats
    model.norm2.moving_variance.assign(w["norm2.running_var"])  # <- stats
    for name in ("squeeze", "excite", "head"):
        getattr(model, name).set_weights([w[name + ".weight"].T, w[name + ".bias"]])
    model.point.set_weights([w["point.weight"].transpose(2, 3, 1, 0), w["point.bias"]])


model = Net()
model(np.zeros((1, SIZE, SIZE, 3), "float32"))
load(model, sys.argv[1])
criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def evaluate(images, labels):
    return criterion(labels, model(images, training=False))  # <- batch_stats


rng = np.random.RandomState(77)
losses = []
for _ in range(3):
    images = rng.randn(BATCH, 3, SIZE, SIZE).astype("float32").transpose(0, 2, 3, 1)
    labels = rng.randint(0, CLASSES, BATCH)
    losses.append(float(evaluate(tf.constant(images), tf.constant(labels))))
print(losses)
