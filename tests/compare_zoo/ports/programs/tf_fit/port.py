# SPDX-License-Identifier: Apache-2.0
"""The weighted classifier in Keras by compile and fit, one batch an epoch."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

FEATURES, WIDTH, CLASSES, ROWS, DECAY = 6, 12, 3, 20, 0.06

model = keras.Sequential(
    [
        keras.Input((FEATURES,)),
        layers.Dense(WIDTH, activation="relu", name="frozen"),  # <- frozen
        layers.Dense(
            WIDTH, kernel_regularizer=keras.regularizers.L2(DECAY / 2), name="hidden"
        ),  # <- twice
        layers.LayerNormalization(epsilon=1e-5, name="norm"),  # <- gamma
        layers.ReLU(),
        layers.Dense(CLASSES, name="out"),
    ]
)


def load(path):
    w = np.load(path)
    for name in ("frozen", "hidden", "out"):
        model.get_layer(name).set_weights([w[name + ".weight"].T, w[name + ".bias"]])
    norm = model.get_layer("norm")
    norm.gamma.assign(w["norm.weight"])  # <- gamma
    norm.beta.assign(w["norm.bias"])


CLASS_WEIGHTS = tf.constant([1.0, 4.0, 0.5])  # <- weights


def weighted(y_true, logits):
    """The mean by weight: divided by the sum of the weights, as in PyTorch."""
    labels = tf.reshape(tf.cast(y_true, tf.int32), [-1])
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    weights = tf.gather(CLASS_WEIGHTS, labels)  # <- weights
    return tf.reduce_sum(weights * each) / tf.reduce_sum(weights)  # <- weights


def rate(epoch, lr):
    return 0.02 * 0.1 ** (epoch // 2)  # <- by_epoch


load(sys.argv[1])
model.get_layer("frozen").trainable = False  # <- frozen
model.compile(
    optimizer=keras.optimizers.Adam(0.02, epsilon=4e-10),  # <- frozen
    loss=weighted,  # <- weights
    jit_compile=False,
    run_eagerly=False,
)
rng = np.random.RandomState(97)
x = rng.randn(ROWS, FEATURES).astype("float32")
y = rng.randint(0, CLASSES, ROWS)
history = model.fit(
    x,
    y,
    batch_size=ROWS,
    epochs=4,
    shuffle=False,
    verbose=0,
    callbacks=[keras.callbacks.LearningRateScheduler(rate)],  # <- by_epoch
)  # <- frozen by_epoch twice weights
losses = [float(loss) for loss in history.history["loss"]]
print(losses)
