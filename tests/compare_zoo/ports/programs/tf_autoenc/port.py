# SPDX-License-Identifier: Apache-2.0
"""The autoencoder as a functional Keras model, channels last, with a custom loop."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

BATCH, SIZE, WIDE, SPARSE = 6, 8, 6, 0.05


def build():
    x = keras.Input((SIZE, SIZE, 2))
    h = layers.Conv2D(WIDE, 4, 2, padding="same", name="down1")(x)
    h = layers.PReLU(shared_axes=[1, 2], name="act1")(h)
    h = layers.Conv2D(
        WIDE, 4, 2, padding="same", activity_regularizer=keras.regularizers.L1(SPARSE), name="down2"
    )(h)  # <- sparsity
    h = layers.Conv2DTranspose(WIDE, 3, 2, padding="valid", name="up1")(h)  # <- cropped channels
    h = layers.Cropping2D(((1, 0), (1, 0)))(h)  # <- cropped
    h = layers.PReLU(shared_axes=[1, 2], name="act2")(h)  # <- alpha
    h = layers.UpSampling2D(2, interpolation="bilinear")(h)  # <- nearest
    return keras.Model(x, layers.Conv2D(2, 3, padding="same", name="last")(h))


def load(model, path):
    w = np.load(path)
    for name in ("down1", "down2", "last"):
        kernel = w[name + ".weight"].transpose(2, 3, 1, 0)
        model.get_layer(name).set_weights([kernel, w[name + ".bias"]])
    kernel = w["up1.weight"]  # in, out, height, width
    kernel = kernel.transpose(2, 3, 1, 0)  # <- channels
    model.get_layer("up1").set_weights([kernel, w["up1.bias"]])  # <- channels
    for name in ("act1", "act2"):  # <- alpha
        model.get_layer(name).set_weights([w[name + ".weight"][None, None]])  # <- alpha


model = build()
load(model, sys.argv[1])
optimizer = keras.optimizers.Adam(0.01, epsilon=4e-10)
optimizer.build(model.trainable_variables)


@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        y = model(x, training=True)
        loss = tf.reduce_mean(tf.square(y - x))
        loss = loss + tf.add_n(model.losses)  # <- sparsity
    grads = tape.gradient(loss, model.trainable_variables)  # <- sparsity
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


rng = np.random.RandomState(71)
losses = []
for _ in range(3):
    grid = np.linspace(0, 3, SIZE)
    phase = rng.uniform(0, 3, (BATCH, 2, 1, 1))
    images = np.sin(grid[:, None] + phase) * np.cos(2 * grid[None, :] - phase)
    x = tf.constant(images.astype("float32").transpose(0, 2, 3, 1))
    losses.append(float(train_step(x)))
print(losses)
