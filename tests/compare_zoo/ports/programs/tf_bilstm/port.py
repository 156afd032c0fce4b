# SPDX-License-Identifier: Apache-2.0
"""The bidirectional LSTM in Keras with masking, trained by a custom loop."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

VOCAB, EMBED, HIDDEN, LENGTH, CLASSES, BATCH = 25, 8, 6, 6, 4, 10


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(VOCAB, EMBED, mask_zero=True)  # <- mask
        self.rnn = layers.Bidirectional(layers.LSTM(HIDDEN))
        self.fc = layers.Dense(CLASSES)

    def call(self, ids):
        x = self.embed(ids)  # <- mask
        mask = self.embed.compute_mask(ids)  # <- mask
        h = self.rnn(x, mask=mask)  # <- mask gates recurrent_bias suffix
        return self.fc(h)


def gates(tensor):
    """From rows of gates i f g o to columns of gates i f c o."""
    i, f, g, o = np.split(tensor, 4, axis=0)  # <- gates
    return np.concatenate([i, f, g, o], axis=0).T  # <- gates


def load(model, path):
    w = np.load(path)
    model.embed.set_weights([w["embed.weight"]])
    for layer, suffix in (
        (model.rnn.forward_layer, ""),
        (model.rnn.backward_layer, "_reverse"),
    ):  # <- suffix
        kernel = gates(w["lstm.weight_ih_l0" + suffix])  # <- gates suffix
        recurrent = gates(w["lstm.weight_hh_l0" + suffix])  # <- gates suffix
        bias = (
            w["lstm.bias_ih_l0" + suffix] + w["lstm.bias_hh_l0" + suffix]
        )  # <- recurrent_bias suffix
        layer.set_weights([kernel, recurrent, gates(bias)])  # <- gates recurrent_bias suffix
    model.fc.set_weights([w["fc.weight"].T, w["fc.bias"]])


model = Classifier()
model(np.ones((2, LENGTH), "int64"))
load(model, sys.argv[1])
optimizer = keras.optimizers.SGD(0.8, momentum=0.9, global_clipnorm=0.25)  # <- clip
optimizer.build(model.trainable_variables)
criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(ids, labels):
    with tf.GradientTape() as tape:
        loss = criterion(labels, model(ids, training=True))
    grads = tape.gradient(loss, model.trainable_variables)
    grads = [tf.convert_to_tensor(g) for g in grads]
    optimizer.apply_gradients(zip(grads, model.trainable_variables))  # <- clip
    return loss


rng = np.random.RandomState(41)
losses = []
for _ in range(3):
    lengths = rng.randint(2, LENGTH + 1, BATCH)
    ids = rng.randint(1, VOCAB, (BATCH, LENGTH))
    ids[np.arange(LENGTH)[None] >= lengths[:, None]] = 0
    labels = ids[:, 0] % CLASSES
    losses.append(float(train_step(tf.constant(ids), tf.constant(labels))))
print(losses)
