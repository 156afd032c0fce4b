# SPDX-License-Identifier: Apache-2.0
"""The text CNN as a functional Keras model, trained by train_on_batch."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

VOCAB, EMBED, FILTERS, WIDTHS, LENGTH, BATCH = 40, 10, 8, (2, 3, 4), 12, 16


class DenseGradients(keras.Model):
    """A model whose sparse gradients are summed up before the optimizer squares them."""

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))  # <- logits
        grads = tape.gradient(loss, self.trainable_variables)
        grads = [tf.convert_to_tensor(g) for g in grads]
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))  # <- rho eps
        return {"loss": loss}


def build():
    ids = keras.Input((LENGTH,), dtype="int64")
    x = layers.Embedding(VOCAB, EMBED, name="embed")(ids)
    pooled = []
    for n, width in enumerate(WIDTHS):
        h = layers.ZeroPadding1D(width - 1)(x)  # <- wide
        conv = layers.Conv1D(
            FILTERS, width, activation="tanh", padding="valid", name=f"conv{n}"
        )  # <- wide
        h = conv(h)  # <- wide biases
        pooled.append(layers.GlobalMaxPooling1D()(h))
    x = layers.Concatenate()(pooled)
    x = layers.Dense(12, activation="silu", name="hidden")(x)
    x = layers.Dense(1, activation=None, name="out")(x)  # <- logits
    return DenseGradients(ids, x)


def load(model, path):
    w = np.load(path)
    model.get_layer("embed").set_weights([w["embed.weight"]])
    for n in range(len(WIDTHS)):
        kernel = w[f"convs.{n}.weight"].transpose(2, 1, 0)
        bias = w[f"convs.{n}.bias"]  # <- biases
        model.get_layer(f"conv{n}").set_weights([kernel, bias])  # <- biases
    for name in ("hidden", "out"):
        model.get_layer(name).set_weights([w[name + ".weight"].T, w[name + ".bias"]])


model = build()
load(model, sys.argv[1])
# Keras adds epsilon below the root: 1e-16 there is the 1e-8 of PyTorch
optimizer = keras.optimizers.RMSprop(2e-3, rho=0.99, epsilon=1e-16)  # <- rho eps
model.compile(
    optimizer=optimizer,
    loss=keras.losses.BinaryCrossentropy(from_logits=True),  # <- logits
    jit_compile=False,
    run_eagerly=False,
)
rng = np.random.RandomState(31)
losses = []
for _ in range(4):
    ids = rng.randint(0, VOCAB, (BATCH, LENGTH))
    labels = (ids[:, :4].sum(1) > 2 * VOCAB).astype("float32")
    loss = model.train_on_batch(ids, labels[:, None], return_dict=True)["loss"]
    losses.append(float(loss))
print(losses)
