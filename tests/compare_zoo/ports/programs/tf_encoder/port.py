# SPDX-License-Identifier: Apache-2.0
"""The encoder on keras.layers.MultiHeadAttention."""

import math
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

VOCAB, EMBED, HEADS, INNER, LENGTH, CLASSES, BATCH = 30, 16, 4, 32, 8, 3, 6
HEAD = EMBED // HEADS


class EncoderLayer(layers.Layer):
    def __init__(self):
        super().__init__()
        self.attn = layers.MultiHeadAttention(HEADS, key_dim=HEAD, flash_attention=False)
        self.norm1 = layers.LayerNormalization(epsilon=1e-5)  # <- ln_eps
        self.fc1 = layers.Dense(INNER)
        self.fc2 = layers.Dense(EMBED)
        self.norm2 = layers.LayerNormalization(epsilon=1e-5)  # <- ln_eps

    def call(self, x, keep):
        attended = self.attn(x, x, attention_mask=keep[:, None, :])  # <- mask split
        x = self.norm1(x + attended)  # <- ln_eps
        hidden = keras.activations.gelu(self.fc1(x), approximate=False)
        return self.norm2(x + self.fc2(hidden))  # <- ln_eps


class Encoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.tokens = layers.Embedding(VOCAB, EMBED)
        self.positions = layers.Embedding(LENGTH, EMBED)
        self.blocks = [EncoderLayer() for _ in range(2)]
        self.head = layers.Dense(CLASSES)

    def call(self, ids):
        keep = tf.not_equal(ids, 0)  # <- mask
        x = self.tokens(ids) * math.sqrt(EMBED)  # <- unscaled
        x = x + self.positions(tf.range(LENGTH))  # <- unscaled
        for block in self.blocks:
            x = block(x, keep)
        weight = tf.cast(keep, tf.float32)[..., None]  # <- pool
        pooled = tf.reduce_sum(x * weight, 1) / tf.reduce_sum(weight, 1)  # <- pool
        return self.head(pooled)


def load(model, path):
    w = np.load(path)
    model.tokens.set_weights([w["tokens.weight"]])
    model.positions.set_weights([w["positions.weight"]])
    for i, block in enumerate(model.blocks):
        at = f"layers.{i}."
        weights = []
        for matrix, bias in zip(
            np.split(w[at + "attn.in_proj_weight"], 3), np.split(w[at + "attn.in_proj_bias"], 3)
        ):
            weights.append(matrix.T.reshape(EMBED, HEADS, HEAD))  # <- split
            weights.append(bias.reshape(HEADS, HEAD))  # <- split
        weights.append(w[at + "attn.out_proj.weight"].T.reshape(HEADS, HEAD, EMBED))
        weights.append(w[at + "attn.out_proj.bias"])
        block.attn.set_weights(weights)  # <- split
        for name in ("fc1", "fc2"):
            getattr(block, name).set_weights([w[at + name + ".weight"].T, w[at + name + ".bias"]])
        for name in ("norm1", "norm2"):
            getattr(block, name).set_weights([w[at + name + ".weight"], w[at + name + ".bias"]])
    model.head.set_weights([w["head.weight"].T, w["head.bias"]])


model = Encoder()
model(np.ones((2, LENGTH), "int64"))
load(model, sys.argv[1])
optimizer = keras.optimizers.AdamW(5e-3, weight_decay=0.01, epsilon=4e-10)
optimizer.build(model.trainable_variables)
criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(ids, labels):
    with tf.GradientTape() as tape:
        loss = criterion(labels, model(ids, training=True))
    grads = tape.gradient(loss, model.trainable_variables)
    grads = [tf.convert_to_tensor(g) for g in grads]
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


rng = np.random.RandomState(81)
losses = []
for _ in range(3):
    ids = rng.randint(1, VOCAB, (BATCH, LENGTH))
    lengths = rng.randint(2, LENGTH + 1, BATCH)
    ids[np.arange(LENGTH)[None] >= lengths[:, None]] = 0
    labels = ids[:, 0] % CLASSES
    losses.append(float(train_step(tf.constant(ids), tf.constant(labels))))
print(losses)
