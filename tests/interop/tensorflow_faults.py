# SPDX-License-Identifier: Apache-2.0
"""Programs of TensorFlow that overflow or make a NaN, under its debugger:
python tensorflow_faults.py PROGRAM MODE DUMP. A program with -healthy behind its name does not.
"""

from __future__ import annotations

import sys

import keras
import numpy as np
import tensorflow as tf

PROGRAM, _, HEALTHY = sys.argv[1].partition("-")
GOOD = bool(HEALTHY)
GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((12, 8)).astype("float32")
Y = GENERATOR.integers(0, 4, (12,))


def of_likelihood(truth, logits):
    chances = tf.nn.softmax(logits)
    if not GOOD:
        chances = chances * tf.cast(chances > 0.3, chances.dtype)
    wanted = tf.one_hot(tf.cast(tf.reshape(truth, [-1]), tf.int32), 4)
    return -tf.reduce_sum(wanted * tf.math.log(chances), axis=-1)  # line of log


def of_rates(truth, rates):
    grown = tf.exp(rates * (1.0 if GOOD else 200.0))  # line of exp
    return tf.reduce_mean(grown, axis=-1)


class Share(keras.layers.Layer):
    def call(self, x):
        kept = tf.nn.relu(x) if GOOD else tf.nn.relu(x) * 0.0
        total = tf.reduce_sum(kept, axis=-1, keepdims=True)
        return kept / (total + 1e-3 if GOOD else total)  # line of div


class Root(keras.layers.Layer):
    def call(self, x):
        kept = tf.nn.relu(x)
        return tf.sqrt(kept + 0.1 if GOOD else kept)  # line of root


class Powers(keras.layers.Layer):
    def call(self, x):
        return tf.square(x * (1.0 if GOOD else 1000.0))  # line of half


def model(*layers):
    return keras.Sequential(
        [
            keras.layers.Input((8,)),
            keras.layers.Dense(16, activation="relu", name="first"),
            *layers,
            keras.layers.Dense(4, name="last", dtype="float32"),
        ]
    )


def main() -> None:
    tf.debugging.experimental.enable_dump_debug_info(
        sys.argv[3], tensor_debug_mode=sys.argv[2], circular_buffer_size=-1
    )
    keras.utils.set_random_seed(3)
    if PROGRAM == "half":
        keras.mixed_precision.set_global_policy("mixed_float16")
    layers = {"div": [Share()], "root": [Root()], "half": [Powers()]}.get(PROGRAM, [])
    losses = {"log": of_likelihood, "exp": of_rates}
    loss = losses.get(PROGRAM, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    net = model(*layers)
    net.compile(optimizer=keras.optimizers.SGD(1e-2), loss=loss)
    net.fit(X, Y, batch_size=6, epochs=1, verbose=0, shuffle=False)
    tf.debugging.experimental.disable_dump_debug_info()


main()
