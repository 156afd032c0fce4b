# SPDX-License-Identifier: Apache-2.0
"""Keras port of the tagger: MultiHeadAttention layers, fixed padded length, weighted smoothed loss."""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
from tensorflow import keras

tf.debugging.experimental.enable_dump_debug_info(sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1)
V, C, D, H, FF, DEPTH, N, LENGTH = 50, 7, 32, 4, 48, 1, 8, 16


class EncoderLayer(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.ln1 = keras.layers.LayerNormalization(epsilon=1e-5)
        self.ln2 = keras.layers.LayerNormalization(epsilon=1e-5)
        self.mha = keras.layers.MultiHeadAttention(H, D // H)
        self.up = keras.layers.Dense(FF, activation="gelu")
        self.down = keras.layers.Dense(D)

    def call(self, x, present):
        h = self.ln1(x)
        x = x + self.mha(h, h, attention_mask=present[:, None, :])
        return x + self.down(self.up(self.ln2(x)))


class Tagger(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(V, D)
        self.stack = [EncoderLayer() for _ in range(DEPTH)]
        self.last = keras.layers.LayerNormalization(epsilon=1e-5)
        self.out = keras.layers.Dense(C)
        angle = np.arange(LENGTH)[:, None] / 10000.0 ** (np.arange(0, D, 2) / D)
        self.wave = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(LENGTH, D).astype(np.float32)

    def call(self, tokens):
        present = tf.not_equal(tokens, 0)
        x = self.table(tokens) * D ** 0.5 + self.wave
        for layer in self.stack:
            x = layer(x, present)
        return self.out(self.last(x))


class Noam(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        s = tf.cast(step, tf.float32) + 1.0
        return 0.02 * D ** -0.5 * tf.minimum(tf.math.rsqrt(s), s * 3.0 ** -1.5)


def restore(model, path):
    w = np.load(path)

    def pair(name):
        return [w[name + ".weight"].T, w[name + ".bias"]]

    model.table.set_weights([w["embed.weight"]])
    model.out.set_weights(pair("classifier"))
    model.last.set_weights(pair("encoder.norm"))
    for i, layer in enumerate(model.stack):
        src = f"encoder.layers.{i}."
        weights = []
        for m, b in zip(np.split(w[src + "self_attn.in_proj_weight"], 3), np.split(w[src + "self_attn.in_proj_bias"], 3)):
            weights += [m.T.reshape(D, H, D // H), b.reshape(H, D // H)]
        m, b = pair(src + "self_attn.out_proj")
        layer.mha.set_weights(by_name(layer.mha, weights + [m.reshape(H, D // H, D), b]))
        layer.ln1.set_weights(pair(src + "norm1"))
        layer.ln2.set_weights(pair(src + "norm2"))
        layer.up.set_weights(pair(src + "linear1"))
        layer.down.set_weights(pair(src + "linear2"))


def by_name(mha, values):
    """The values, given as query, key, value, output, in the order in which the layer keeps its weights."""
    order = ["query", "key", "value", "attention_output"]
    place = lambda v: 2 * order.index(v.path.split("/")[-2]) + (v.name == "bias")
    return [values[place(v)] for v in mha.weights]


def batches(seed, count):
    rs = np.random.RandomState(seed)
    for _ in range(count):
        tokens, tags = np.zeros((N, LENGTH), np.int32), np.zeros((N, LENGTH), np.int32)
        for row, n in enumerate(rs.randint(5, 13, size=N)):
            words = rs.randint(1, V, size=n)
            tokens[row, :n] = words
            tags[row, :n] = (words + words[np.arange(n) - 1]) % C
        yield tf.constant(tokens), tf.constant(tags)


model = Tagger()
model(tf.ones((1, LENGTH), tf.int32))
restore(model, sys.argv[1])
optimizer = keras.optimizers.Adam(Noam(), beta_1=0.9, beta_2=0.98, epsilon=1e-9)
optimizer.build(model.trainable_variables)
smoothed = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1, reduction=None)
hits = keras.metrics.SparseCategoricalAccuracy()


@tf.function
def train_step(tokens, tags):
    weight = tf.cast(tokens > 0, tf.float32)
    with tf.GradientTape() as tape:
        logits = model(tokens, training=True)
        each = smoothed(tf.one_hot(tags, C), logits)
        loss = tf.reduce_sum(each * weight) / tf.reduce_sum(weight)
    # the embedding's gradient is sparse: sum its repeated rows before the norm is taken
    grads = [tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_variables)]
    grads, _ = tf.clip_by_global_norm(grads, 0.7)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    hits.update_state(tags, logits, sample_weight=weight)
    return loss


losses = [float(train_step(tokens, tags)) for tokens, tags in batches(9, 4)]
print(losses)
