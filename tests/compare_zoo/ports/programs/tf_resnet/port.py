# SPDX-License-Identifier: Apache-2.0
"""The ResNet in Keras, channels last, trained by a custom loop."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

CLASSES, BATCH, SIZE = 4, 8, 12


def average(x, stride):
    """The average over 3 x 3 in which the zeros of the border count, as in PyTorch."""
    x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])  # <- counted
    return tf.nn.avg_pool2d(x, 3, stride, padding="VALID")  # <- counted


class Block(layers.Layer):
    def __init__(self, outer, stride):
        super().__init__()
        self.stride = stride
        self.norm1 = layers.BatchNormalization(epsilon=1e-5, momentum=0.9)
        self.pad = layers.ZeroPadding2D(1)  # <- same
        self.conv1 = layers.Conv2D(outer, 3, stride, padding="valid", use_bias=False)  # <- same
        self.norm2 = layers.BatchNormalization(epsilon=1e-5, momentum=0.9)
        self.conv2 = layers.Conv2D(outer, 3, padding="same", use_bias=False)
        self.fit = layers.Conv2D(outer, 1, use_bias=False)

    def call(self, x, training=False):
        h = self.pad(tf.nn.relu(self.norm1(x, training=training)))  # <- same
        h = self.conv1(h)  # <- same
        h = self.conv2(tf.nn.relu(self.norm2(h, training=training)))
        side = average(x, self.stride)  # <- counted
        return h + self.fit(side)


class ResNet(keras.Model):
    def __init__(self):
        super().__init__()
        self.stem = layers.Conv2D(6, 3, padding="same")
        self.block1 = Block(8, 2)
        self.block2 = Block(10, 2)
        self.flatten = layers.Flatten()
        self.fc = layers.Dense(CLASSES)

    def call(self, x, training=False):
        x = self.stem(x)
        x = self.block2(self.block1(x, training=training), training=training)
        x = self.flatten(tf.nn.relu(x))  # <- flatten
        return self.fc(x)  # <- flatten


def load(model, path):
    w = np.load(path)
    model.stem.set_weights([w["stem.weight"].transpose(2, 3, 1, 0), w["stem.bias"]])
    for name in ("block1", "block2"):
        block = getattr(model, name)
        for part in ("conv1", "conv2", "fit"):
            kernel = w[f"{name}.{part}.weight"].transpose(2, 3, 1, 0)
            getattr(block, part).set_weights([kernel])
        for part in ("norm1", "norm2"):
            getattr(block, part).gamma.assign(w[f"{name}.{part}.weight"])
            getattr(block, part).beta.assign(w[f"{name}.{part}.bias"])
    kernel = w["fc.weight"].reshape(CLASSES, 10, 3, 3).transpose(2, 3, 1, 0)  # <- flatten
    model.fc.set_weights([kernel.reshape(-1, CLASSES), w["fc.bias"]])  # <- flatten


model = ResNet()
model(np.zeros((1, SIZE, SIZE, 3), "float32"))
load(model, sys.argv[1])
variables = model.trainable_variables
optimizer = keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)  # <- nesterov decay_all
optimizer.build(variables)
criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        loss = criterion(labels, model(images, training=True))
    grads = tape.gradient(loss, variables)
    grads = [
        g + 0.05 * v if len(v.shape) > 1 else g for g, v in zip(grads, variables)
    ]  # <- decay_all
    optimizer.apply_gradients(zip(grads, variables))  # <- nesterov decay_all
    return loss


rng = np.random.RandomState(51)
losses = []
for _ in range(3):
    labels = rng.randint(0, CLASSES, BATCH)
    images = rng.randn(BATCH, 3, SIZE, SIZE) + 0.5 * labels[:, None, None, None]
    images = images.astype("float32").transpose(0, 2, 3, 1)
    losses.append(float(train_step(tf.constant(images), tf.constant(labels))))
print(losses)
