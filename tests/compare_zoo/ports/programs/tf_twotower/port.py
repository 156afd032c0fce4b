# SPDX-License-Identifier: Apache-2.0
"""The two-tower model in Keras, trained by a custom loop."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

USERS, ITEMS, DIM, OUT, BATCH, LENGTH = 30, 40, 8, 6, 12, 5


class TwoTower(keras.Model):
    def __init__(self):
        super().__init__()
        self.users = layers.Embedding(USERS, DIM)
        self.items = layers.Embedding(ITEMS, DIM)
        self.user_fc = layers.Dense(OUT)
        self.item_fc = layers.Dense(OUT)
        self.log_scale = self.add_weight(
            shape=(), initializer="zeros", name="log_scale"
        )  # <- scale

    def call(self, inputs):
        user, history, item = inputs
        taken = tf.cast(tf.not_equal(history, 0), tf.float32)[..., None]  # <- bag
        past = self.items(history)
        past = tf.reduce_sum(past * taken, 1) / tf.maximum(tf.reduce_sum(taken, 1), 1.0)  # <- bag
        u = tf.concat([self.users(user), past], axis=1)
        u = tf.math.l2_normalize(self.user_fc(u), axis=-1)  # <- axis
        v = tf.math.l2_normalize(self.item_fc(self.items(item)), axis=-1)
        return tf.matmul(u, v, transpose_b=True) * tf.exp(self.log_scale)  # <- scale


def load(model, path):
    w = np.load(path)
    model.users.set_weights([w["users.weight"]])
    model.items.set_weights([w["items.weight"]])
    for name in ("user_fc", "item_fc"):
        getattr(model, name).set_weights([w[name + ".weight"].T, w[name + ".bias"]])
    model.log_scale.assign(w["log_scale"])  # <- scale


model = TwoTower()
model((np.zeros(2, "int64"), np.ones((2, LENGTH), "int64"), np.zeros(2, "int64")))
load(model, sys.argv[1])
optimizer = keras.optimizers.AdamW(
    0.03, weight_decay=0.2, beta_1=0.5, beta_2=0.98, epsilon=1e-9
)  # <- excluded betas
optimizer.exclude_from_weight_decay(var_names=["embeddings", "bias", "log_scale"])  # <- excluded
optimizer.build(model.trainable_variables)
criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(user, history, item):
    with tf.GradientTape() as tape:
        logits = model((user, history, item), training=True)
        target = tf.range(BATCH)
        loss = (criterion(target, logits) + criterion(target, tf.transpose(logits))) / 2.0
    grads = tape.gradient(loss, model.trainable_variables)
    grads = [tf.convert_to_tensor(g) for g in grads]
    optimizer.apply_gradients(zip(grads, model.trainable_variables))  # <- excluded betas
    return loss


rng = np.random.RandomState(91)
losses = []
for _ in range(4):
    user = rng.randint(0, USERS, BATCH)
    history = rng.randint(1, ITEMS, (BATCH, LENGTH))
    history[rng.rand(BATCH, LENGTH) < 0.4] = 0
    item = (user + history.max(1)) % (ITEMS - 1) + 1
    losses.append(float(train_step(tf.constant(user), tf.constant(history), tf.constant(item))))
print(losses)
