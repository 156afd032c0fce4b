# SPDX-License-Identifier: Apache-2.0
"""The BERT-like classifier in flax linen, trained by optax through a TrainState."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import traverse_util
from flax.training.train_state import TrainState

import opscope

VOCAB, WIDTH, HEADS, INNER, LAYERS, LENGTH, CLASSES = 60, 32, 4, 64, 2, 12, 4


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        y = nn.MultiHeadDotProductAttention(HEADS, name="attention")(
            x, x, mask=mask
        )  # <- mask out_kernel
        x = nn.LayerNorm(epsilon=1e-5, name="norm1")(x + y)
        y = nn.Dense(INNER, name="intermediate")(x)
        y = nn.Dense(WIDTH, name="output")(nn.gelu(y, approximate=False))  # <- gelu
        return nn.LayerNorm(epsilon=1e-5, name="norm2")(x + y)


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, ids, mask):
        x = nn.Embed(VOCAB, WIDTH, name="word")(ids)
        x = x + nn.Embed(LENGTH, WIDTH, name="position")(jnp.arange(ids.shape[1]))
        x = nn.LayerNorm(name="norm", epsilon=1e-5)(x)  # <- norm_eps
        pairs = mask[:, None, None, :]  # <- mask
        for n in range(LAYERS):
            x = Block(name=f"layers_{n}")(x, pairs)  # <- mask
        x = jnp.tanh(nn.Dense(WIDTH, name="pooler")(x[:, 0]))
        return nn.Dense(CLASSES, name="classifier")(x)


def load(path):
    flat, head = {}, WIDTH // HEADS
    for name, value in np.load(path).items():
        *scope, kind = name.replace("layers.", "layers_").split(".")
        module = scope[-1]
        if kind == "weight":
            if module in ("word", "position"):
                kind = "embedding"
            elif "norm" in module:
                kind = "scale"
            else:
                kind = "kernel"
        if module in ("query", "key", "value"):
            value = (
                value.T.reshape(WIDTH, HEADS, head)
                if kind == "kernel"
                else value.reshape(HEADS, head)
            )
        elif module == "dense":
            scope[-1] = "out"
            if kind == "kernel":
                value = value.T.reshape(HEADS, head, WIDTH)  # <- out_kernel
        elif kind == "kernel":
            value = value.T
        flat[(*scope, kind)] = jnp.asarray(value)
    return traverse_util.unflatten_dict(flat)


def decay_mask(params):
    flat = traverse_util.flatten_dict(params)
    return traverse_util.unflatten_dict(
        {k: k[-1] not in ("bias", "scale") for k in flat}
    )  # <- no_decay


@jax.jit
def train_step(state, ids, mask, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, ids, mask)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss  # <- no_decay


train_step = opscope.watch_jax(train_step, sys.argv[2])
tx = optax.adamw(5e-3, eps=1e-6, weight_decay=0.1, mask=decay_mask)  # <- no_decay
state = TrainState.create(apply_fn=Classifier().apply, params=load(sys.argv[1]), tx=tx)
random = np.random.RandomState(12)
losses = []
for _ in range(4):
    ids = random.randint(1, VOCAB, (8, LENGTH))
    lengths = random.randint(4, LENGTH + 1, (8,))
    labels = random.randint(0, CLASSES, (8,))
    mask = np.arange(LENGTH) < lengths[:, None]
    state, loss = train_step(state, ids * mask, mask, labels)
    losses.append(float(loss))
print(losses)
