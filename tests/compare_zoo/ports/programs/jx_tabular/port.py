# SPDX-License-Identifier: Apache-2.0
"""The tabular net in flax linen with optax."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

import opscope

SIZES, DIM, NUMERIC, HIDDEN, BATCH = (12, 7, 20), 6, 5, 32, 16


class TabularNet(nn.Module):
    @nn.compact
    def __call__(self, categories, numbers):
        parts = []
        for i, n in enumerate(SIZES):
            ids = categories[:, i]
            vectors = nn.Embed(n, DIM, name=f"embeds_{i}")(ids)  # <- padding_row
            parts.append(vectors * (ids != 0)[:, None])  # <- padding_row
        x = jnp.concatenate(parts + [numbers], axis=1)
        for i in range(2):
            x = nn.Dense(HIDDEN, name=f"lin{i}")(x)
            x = nn.LayerNorm(epsilon=1e-5, name=f"norm{i}")(x)
            x = nn.leaky_relu(x, negative_slope=0.2)  # <- slope
        return nn.Dense(1, name="out")(x).squeeze(1)


def load(path):
    params = {}
    for name, value in np.load(path).items():
        module, kind = name.rsplit(".", 1)
        if module.startswith("embeds"):
            kind = "embedding"
        elif kind == "weight":
            kind = "scale" if value.ndim == 1 else "kernel"
            value = value.T
        params.setdefault(module.replace(".", "_"), {})[kind] = jnp.asarray(value)
    return params


def weighted_bce(logits, labels, pos_weight):
    positive = labels * jax.nn.log_sigmoid(logits)  # <- pos_weight
    negative = (1 - labels) * jax.nn.log_sigmoid(-logits)  # <- pos_weight
    return -(pos_weight * positive + negative).mean()  # <- pos_weight


@jax.jit
def train_step(state, categories, numbers, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, categories, numbers)
        return weighted_bce(logits, labels, 3.0)  # <- pos_weight

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss  # <- alpha stairs padding_row


train_step = opscope.watch_jax(train_step, sys.argv[2])
schedule = optax.exponential_decay(
    2e-3, transition_steps=2, decay_rate=0.3, staircase=True
)  # <- stairs
tx = optax.chain(
    optax.scale_by_rms(decay=0.99, eps=1e-8, eps_in_sqrt=False),  # <- alpha
    optax.trace(0.9),
    optax.scale_by_learning_rate(schedule),  # <- stairs
)  # <- alpha stairs
state = TrainState.create(apply_fn=TabularNet().apply, params=load(sys.argv[1]), tx=tx)
random = np.random.RandomState(62)
losses = []
for _ in range(4):
    categories = np.stack([random.randint(0, n, BATCH) for n in SIZES], axis=1)
    categories[random.rand(BATCH, len(SIZES)) < 0.3] = 0
    numbers = random.randn(BATCH, NUMERIC).astype(np.float32)
    labels = (random.rand(BATCH) < 0.3).astype(np.float32)
    state, loss = train_step(state, categories, numbers, labels)
    losses.append(float(loss))
print(losses)
