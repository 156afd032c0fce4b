# SPDX-License-Identifier: Apache-2.0
"""The GRU language model in Keras (reset_after), trained by a custom loop."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

VOCAB, HIDDEN, LENGTH, BATCH, PAD = 22, 10, 7, 8, 0


class LanguageModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(VOCAB, HIDDEN)
        self.gru = layers.GRU(HIDDEN, return_sequences=True, reset_after=True)
        self.bias = self.add_weight(shape=(VOCAB,), initializer="zeros", name="bias")

    def call(self, ids):
        x = self.embed(ids) * HIDDEN**0.5
        h = self.gru(x)  # <- gates hidden_bias
        return tf.matmul(h, self.embed.embeddings, transpose_b=True) + self.bias


def zrh(tensor):
    """From the gates r z n of PyTorch to z r h of Keras."""
    r, z, n = np.split(tensor, 3)  # <- gates
    return np.concatenate([z, r, n])  # <- gates


def load(model, path):
    w = np.load(path)
    model.embed.set_weights([w["embed.weight"]])
    kernel = zrh(w["gru.weight_ih_l0"]).T  # <- gates
    recurrent = zrh(w["gru.weight_hh_l0"]).T  # <- gates
    bias = np.stack([zrh(w["gru.bias_ih_l0"]), zrh(w["gru.bias_hh_l0"])])  # <- gates hidden_bias
    model.gru.set_weights([kernel, recurrent, bias])  # <- gates hidden_bias
    model.bias.assign(w["bias"])


class Hyperbolic(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.05 / (1.0 + tf.cast(step, tf.float32))  # <- late


model = LanguageModel()
model(np.ones((2, LENGTH), "int64"))
load(model, sys.argv[1])
optimizer = keras.optimizers.Adagrad(
    Hyperbolic(), initial_accumulator_value=0.0, epsilon=1e-16
)  # <- accumulator late
optimizer.build(model.trainable_variables)
criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


@tf.function
def train_step(inputs, targets):
    with tf.GradientTape() as tape:
        each = criterion(targets, model(inputs, training=True))
        mask = tf.cast(targets != PAD, tf.float32)  # <- ignored
        loss = tf.reduce_sum(each * mask) / tf.reduce_sum(mask)  # <- ignored
    variables = model.trainable_variables
    grads = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
    optimizer.apply_gradients(zip(grads, variables))  # <- accumulator late
    return loss


rng = np.random.RandomState(61)
losses = []
for _ in range(4):
    ids = rng.randint(1, VOCAB, (BATCH, LENGTH + 1))
    ids[:, 1::2] = (ids[:, :-1:2] * 2) % (VOCAB - 1) + 1
    lengths = rng.randint(3, LENGTH + 2, BATCH)
    ids[np.arange(LENGTH + 1)[None] >= lengths[:, None]] = PAD
    loss = train_step(tf.constant(ids[:, :-1]), tf.constant(ids[:, 1:]))
    losses.append(float(loss))
print(losses)
