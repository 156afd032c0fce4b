# SPDX-License-Identifier: Apache-2.0
"""The matrix factorisation by plain TensorFlow variables and a hand-written momentum update."""

import sys

import numpy as np
import tensorflow as tf

tf.debugging.experimental.enable_dump_debug_info(
    sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1
)

USERS, ITEMS, RANK, BATCH, DECAY, MEAN = 30, 25, 6, 40, 0.02, 3.1

w = np.load(sys.argv[1])
params = {
    "P": tf.Variable(w["user.weight"], name="P"),
    "Q": tf.Variable(w["item.weight"], name="Q"),
    "bu": tf.Variable(w["user_bias.weight"][:, 0], name="bu"),
    "bi": tf.Variable(w["item_bias.weight"], name="bi"),
}
velocity = {k: tf.Variable(tf.zeros_like(v), name="v_" + k) for k, v in params.items()}
step = tf.Variable(0.0, trainable=False, name="step")


def forward(u, i):
    p = tf.nn.embedding_lookup(params["P"], u)
    q = tf.nn.embedding_lookup(params["Q"], i)
    bu = tf.gather(params["bu"], u)
    bi = tf.squeeze(tf.gather(params["bi"], i), axis=-1)  # <- outer
    score = MEAN + tf.reduce_sum(p * q, axis=-1) + bu + bi  # <- outer
    penalty = 2.0 * (tf.nn.l2_loss(p) + tf.nn.l2_loss(q))  # <- halved
    return score, DECAY * penalty / tf.cast(tf.shape(u)[0], tf.float32)  # <- halved


def dense(grad):
    """The gradient of a gather as a full table."""
    if isinstance(grad, tf.IndexedSlices):
        total = tf.zeros(grad.dense_shape, grad.values.dtype)
        return tf.tensor_scatter_nd_add(total, grad.indices[:, None], grad.values)  # <- duplicates
    return grad


@tf.function
def train_step(u, i, r):
    with tf.GradientTape() as tape:
        score, penalty = forward(u, i)
        loss = tf.reduce_mean(tf.square(score - r)) + penalty  # <- outer
    grads = tape.gradient(loss, params)
    lr = 0.6 * tf.pow(0.6, step)  # <- early
    for k, p in params.items():
        velocity[k].assign(0.9 * velocity[k] + dense(grads[k]))  # <- velocity duplicates
        p.assign_sub(lr * velocity[k])  # <- velocity early duplicates
    step.assign_add(1.0)  # <- early
    return loss


rng = np.random.RandomState(21)
losses = []
for _ in range(4):
    users = tf.constant(rng.randint(0, USERS, BATCH))
    items = tf.constant(rng.randint(0, ITEMS, BATCH))
    ratings = tf.constant(rng.randint(1, 6, BATCH).astype("float32"))
    losses.append(float(train_step(users, items, ratings)))
print(losses)
