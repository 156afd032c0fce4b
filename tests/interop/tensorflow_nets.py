# SPDX-License-Identifier: Apache-2.0
"""The nets of tensorflow_ports.py in TensorFlow, under its debugger:
python tensorflow_nets.py NET FAULT MODE DUMP WEIGHTS. FAULT is "none", or what the port does wrong.
"""

from __future__ import annotations

import sys

import keras
import numpy as np
import tensorflow as tf

NET, FAULT, MODE, DUMP, WEIGHTS = sys.argv[1:]
LAYERS = keras.layers
GENERATOR = np.random.default_rng(7)


def gelu(x):
    return tf.nn.gelu(x, approximate=FAULT == "gelu")


def mlp():
    return keras.Sequential(
        [
            LAYERS.Input((8,)),
            LAYERS.Dense(16, name="first"),
            LAYERS.Activation(gelu),
            LAYERS.LayerNormalization(epsilon=1e-1 if FAULT == "eps" else 1e-3, name="norm"),
            LAYERS.Dense(4, name="last"),
        ]
    )


class Conv(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.one = LAYERS.Conv2D(8, 3, padding="same", name="one")
        self.norm = LAYERS.BatchNormalization(
            epsilon=1e-1 if FAULT == "eps" else 1e-3,
            momentum=0.9 if FAULT == "average" else 0.99,
            name="norm",
        )
        self.two = LAYERS.Conv2D(8, 3, padding="same", name="two")
        self.pool = (LAYERS.AveragePooling2D if FAULT == "pool" else LAYERS.MaxPooling2D)(2)
        self.head = LAYERS.Dense(4, name="head")

    def call(self, x, training=True):
        x = self.pool(tf.nn.relu(self.norm(self.one(x), training=training)))
        x = tf.nn.relu(self.two(x))
        together = tf.reduce_sum if FAULT == "sum" else tf.reduce_mean
        return self.head(together(x, axis=(1, 2)))


class Transformer(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.words = LAYERS.Embedding(32, 16, name="words")
        self.before = LAYERS.LayerNormalization(
            epsilon=1e-2 if FAULT == "eps" else 1e-5, name="before"
        )
        self.query, self.key, self.value = (
            LAYERS.Dense(16, name=name) for name in ("query", "key", "value")
        )
        self.out = LAYERS.Dense(16, name="out")
        self.after = LAYERS.LayerNormalization(epsilon=1e-5, name="after")
        self.up, self.down = LAYERS.Dense(32, name="up"), LAYERS.Dense(16, name="down")
        self.head = LAYERS.Dense(4, name="head")

    def attention(self, x):
        q, k, v = (
            tf.transpose(tf.reshape(part(x), (-1, 5, 2, 8)), (0, 2, 1, 3))
            for part in (self.query, self.key, self.value)
        )
        scores = tf.matmul(q, k, transpose_b=True)
        if FAULT != "scale":
            scores = scores / 8**0.5
        mixed = tf.matmul(tf.nn.softmax(scores, axis=-2 if FAULT == "axis" else -1), v)
        return self.out(tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (-1, 5, 16)))

    def call(self, x):
        x = self.words(x)
        x = x + self.attention(self.before(x))
        x = x + self.down(gelu(self.up(self.after(x))))
        return self.head(tf.reduce_mean(x, axis=1))


def data():
    shape = {"mlp": (18, 8), "conv": (18, 3, 8, 8), "transformer": (18, 5)}[NET]
    if NET == "transformer":
        x = GENERATOR.integers(0, 32, shape)
    else:
        x = GENERATOR.standard_normal(shape).astype("float32")
    y = GENERATOR.integers(0, 4, (18,))
    return (x.transpose(0, 2, 3, 1) if NET == "conv" else x), y


def load(net, weights) -> None:
    for layer in net.layers:
        own = {
            key.removeprefix(f"{layer.name}."): value
            for key, value in weights.items()
            if key.startswith(f"{layer.name}.")
        }
        if layer.name == "words":
            layer.set_weights([own["weight"]])
        elif "running_mean" in own:
            names = ("weight", "bias", "running_mean", "running_var")
            layer.set_weights([own[name] for name in names])
        elif own:
            kernel = own["weight"]
            turned = kernel.T if kernel.ndim == 2 else kernel
            turned = turned.transpose(2, 3, 1, 0) if kernel.ndim == 4 else turned
            layer.set_weights([turned, own["bias"]])


def optimizer():
    if NET == "conv":
        return keras.optimizers.SGD(0.05, momentum=0.9, nesterov=FAULT == "momentum")
    rate = 0.01 * (1.02 if FAULT == "rate" else 1.0)
    return keras.optimizers.Adam(rate, epsilon=1e-7)


def main() -> None:
    x, y = data()
    tf.debugging.experimental.enable_dump_debug_info(
        DUMP, tensor_debug_mode=MODE, circular_buffer_size=-1
    )
    keras.utils.set_random_seed(3)
    net = {"mlp": mlp, "conv": Conv, "transformer": Transformer}[NET]()
    net.build((None, *x.shape[1:]))
    if NET != "mlp":
        net(x[:1], **({"training": False} if NET == "conv" else {}))
    load(net, np.load(WEIGHTS))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if FAULT == "loss":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    net.compile(optimizer=optimizer(), loss=loss)
    net.fit(x, y, batch_size=6, epochs=1, verbose=0, shuffle=False)
    tf.debugging.experimental.disable_dump_debug_info()


main()
