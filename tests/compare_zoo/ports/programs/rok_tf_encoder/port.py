# SPDX-License-Identifier: Apache-2.0
"""Keras subclassed encoder with keras MultiHeadAttention and AdamW."""
import sys

import numpy as np
import tensorflow as tf
from tensorflow import keras

tf.debugging.experimental.enable_dump_debug_info(sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1)

WIDTH, N_HEADS, N_CLASSES = 24, 3, 4


class Block(keras.layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.mha = keras.layers.MultiHeadAttention(N_HEADS, WIDTH // N_HEADS)
        self.ln_a = keras.layers.LayerNormalization(epsilon=1e-5)  # <- norm_epsilon
        self.ln_b = keras.layers.LayerNormalization(epsilon=1e-05)
        self.ffn_in = keras.layers.Dense(2 * WIDTH, activation="relu")
        self.ffn_out = keras.layers.Dense(WIDTH)

    def call(self, x, mask):
        y = self.ln_a(x)  # <- norm_epsilon
        x = x + self.mha(y, y, attention_mask=mask[:, None, :])  # <- padding_attended
        return x + self.ffn_out(self.ffn_in(self.ln_b(x)))


class Encoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = keras.layers.Embedding(40, WIDTH)
        self.positions = self.add_weight(shape=(10, WIDTH), name="positions")
        self.blocks = [Block(name="b0")]
        self.head = keras.layers.Dense(N_CLASSES)

    def call(self, tokens):
        mask = tf.not_equal(tokens, 0)  # <- padding_attended
        valid = tf.cast(mask, tf.float32)[..., None]
        x = self.embed(tokens) * valid + self.positions
        for block in self.blocks:
            x = block(x, mask)
        x = tf.reduce_sum(x * valid, axis=1) / tf.reduce_sum(valid, axis=1)  # <- mean_over_padding
        return self.head(x)


def import_weights(model, path):
    ckpt = np.load(path)
    model(tf.ones((1, 10), tf.int32))
    model.embed.set_weights([ckpt["tok.weight"]])
    model.positions.assign(ckpt["pos"][0])
    model.head.set_weights([ckpt["out.weight"].T, ckpt["out.bias"]])
    for i, block in enumerate(model.blocks):
        get = lambda name: ckpt[f"layers.{i}.{name}"]
        weights = []
        for w, b in zip(np.split(get("self_attn.in_proj_weight"), 3), np.split(get("self_attn.in_proj_bias"), 3)):
            weights += [w.T.reshape(WIDTH, N_HEADS, -1), b.reshape(N_HEADS, -1)]
        weights += [get("self_attn.out_proj.weight").T.reshape(N_HEADS, -1, WIDTH), get("self_attn.out_proj.bias")]
        block.mha.set_weights(weights)
        for layer, name in ((block.ffn_in, "linear1"), (block.ffn_out, "linear2")):
            layer.set_weights([get(name + ".weight").T, get(name + ".bias")])
        block.ln_a.set_weights([get("norm1.weight"), get("norm1.bias")])
        block.ln_b.set_weights([get("norm2.weight"), get("norm2.bias")])


model = Encoder()
import_weights(model, sys.argv[1])
optimizer = keras.optimizers.AdamW(5e-3, weight_decay=0.01, beta_1=0.9, beta_2=0.95, epsilon=1e-8)  # <- beta2_default
class_weight = tf.constant([0.5, 1.0, 2.0, 1.5])


@tf.function
def train_on_batch(tokens, labels):
    weight = tf.gather(class_weight, labels)
    with tf.GradientTape() as tape:
        logits = model(tokens)
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_sum(weight * nll) / tf.reduce_sum(weight)  # <- weights_not_normalised
    grads = tape.gradient(loss, model.trainable_variables)
    grads = [tf.convert_to_tensor(g) for g in grads]
    optimizer.apply_gradients(zip(grads, model.trainable_variables))  # <- beta2_default
    return loss


def batches(count, rng):
    for _ in range(count):
        tokens = rng.randint(1, 40, size=(8, 10))
        lengths = rng.randint(3, 11, size=(8, 1))
        tokens *= np.arange(10) < lengths
        yield tf.constant(tokens, tf.int32), tf.constant(rng.randint(0, N_CLASSES, size=8), tf.int32)


losses = [float(train_on_batch(t, y)) for t, y in batches(4, np.random.RandomState(31))]
print(losses)
