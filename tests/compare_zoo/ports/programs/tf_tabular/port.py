# SPDX-License-Identifier: Apache-2.0
"""The click model in Keras, trained by a custom loop."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

CARDS, DIM, NUMERIC, HIDDEN, BATCH = (12, 7, 20), 4, 4, 16, 24


class PaddedEmbedding(layers.Embedding):
    """An embedding whose row 0 stands for "missing" and does not learn."""

    def call(self, inputs):
        known = tf.cast(inputs != 0, tf.float32)[:, None]
        return super().call(inputs) * known  # <- padrow


class Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.fc = layers.Dense(HIDDEN, use_bias=False)
        self.norm = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)  # <- bn_eps
        self.act = layers.LeakyReLU(negative_slope=0.01)  # <- leak

    def call(self, x, training=False):
        hidden = self.fc(x)  # <- square
        hidden = self.norm(hidden, training=training)  # <- bn_eps
        return x + self.act(hidden)  # <- leak


class Tabular(keras.Model):
    def __init__(self):
        super().__init__()
        self.embeds = [PaddedEmbedding(c, DIM) for c in CARDS]  # <- padrow
        self.proj = layers.Dense(HIDDEN)
        self.blocks = [Block() for _ in range(2)]
        self.head = layers.Dense(1)

    def call(self, inputs, training=False):
        cats, nums = inputs
        parts = [embed(cats[:, i]) for i, embed in enumerate(self.embeds)]  # <- padrow
        x = self.proj(tf.concat([*parts, nums], axis=1))
        for block in self.blocks:
            x = block(x, training=training)
        return tf.squeeze(self.head(x), axis=1)


def load(model, path):
    w = np.load(path)
    for i, embed in enumerate(model.embeds):
        embed.set_weights([w[f"embeds.{i}.weight"]])
    model.proj.set_weights([w["proj.weight"].T, w["proj.bias"]])
    for i, block in enumerate(model.blocks):
        block.fc.set_weights([w[f"blocks.{i}.fc.weight"].T])  # <- square
        block.norm.gamma.assign(w[f"blocks.{i}.norm.weight"])
        block.norm.beta.assign(w[f"blocks.{i}.norm.bias"])
    model.head.set_weights([w["out.weight"].T, w["out.bias"]])


model = Tabular()
model((np.zeros((2, len(CARDS)), "int64"), np.zeros((2, NUMERIC), "float32")))
load(model, sys.argv[1])
optimizer = keras.optimizers.Adam(0.02, epsilon=4e-10)  # <- coupled
optimizer.build(model.trainable_variables)
bce = keras.losses.BinaryCrossentropy(from_logits=True)


@tf.function
def train_step(cats, nums, labels):
    with tf.GradientTape() as tape:
        loss = bce(labels, model((cats, nums), training=True))
    variables = model.trainable_variables
    grads = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]  # <- padrow
    grads = [g + 0.05 * v for g, v in zip(grads, variables)]  # <- coupled
    optimizer.apply_gradients(zip(grads, variables))  # <- coupled padrow
    return loss


rng = np.random.RandomState(11)
losses = []
for _ in range(4):
    cats = np.stack([rng.randint(0, c, BATCH) for c in CARDS], axis=1)
    cats[rng.rand(BATCH, len(CARDS)) < 0.25] = 0
    nums = rng.randn(BATCH, NUMERIC).astype("float32")
    labels = ((nums[:, 0] + 0.3 * (cats[:, 0] % 3)) > 0.3).astype("float32")
    loss = train_step(tf.constant(cats), tf.constant(nums), tf.constant(labels))
    losses.append(float(loss))
print(losses)
