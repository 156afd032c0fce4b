# SPDX-License-Identifier: Apache-2.0
"""The small ViT in flax linen: patches by reshaping and a dense layer, optax.multi_transform for the rates."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import traverse_util
from flax.training.train_state import TrainState

import opscope

SIDE, PATCH, WIDTH, HEADS, LAYERS, CLASSES = 12, 4, 24, 3, 2, 5
COUNT = (SIDE // PATCH) ** 2


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(name="norm1")(x)
        y = nn.DenseGeneral((3, HEADS, WIDTH // HEADS), name="qkv")(y)  # <- qkv_bias
        q, k, v = y[:, :, 0], y[:, :, 1], y[:, :, 2]
        y = nn.dot_product_attention(q, k, v).reshape(x.shape)
        x = x + nn.Dense(WIDTH, name="proj")(y)
        y = nn.Dense(2 * WIDTH, name="fc1")(nn.LayerNorm(name="norm2")(x))
        return x + nn.Dense(WIDTH, name="fc2")(nn.gelu(y, approximate=False))


class ViT(nn.Module):
    @nn.compact
    def __call__(self, images):
        """images: (batch, height, width, channels)."""
        batch, side = images.shape[0], SIDE // PATCH
        x = images.reshape(batch, side, PATCH, side, PATCH, 3)
        x = x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, COUNT, -1)  # <- patch_order
        x = nn.Dense(WIDTH, name="patch_embed")(x)  # <- patch_order
        token = self.param("cls_token", nn.initializers.zeros, (1, 1, WIDTH))
        places = self.param("pos_embed", nn.initializers.zeros, (1, COUNT + 1, WIDTH))
        x = jnp.concatenate([jnp.tile(token, (batch, 1, 1)), x], axis=1)
        x = x + places
        for n in range(LAYERS):
            x = Block(name=f"blocks_{n}")(x)
        x = x[:, 0]  # <- cls_place
        return nn.Dense(CLASSES, name="head")(nn.LayerNorm(name="norm")(x))  # <- cls_place


def load(path):
    flat = {}
    for name, value in np.load(path).items():
        *scope, kind = name.replace("blocks.", "blocks_").split(".")
        if not scope:
            flat[(kind,)] = value
            continue
        if kind == "weight":
            kind = "scale" if value.ndim == 1 else "kernel"
        if value.ndim == 4:
            value = value.transpose(2, 3, 1, 0).reshape(-1, WIDTH)  # <- patch_order
        elif scope[-1] == "qkv" and kind == "bias":
            value = value.reshape(3, HEADS, -1)  # <- qkv_bias
        elif scope[-1] == "qkv":
            value = value.T.reshape(WIDTH, 3, HEADS, -1)
        elif kind == "kernel":
            value = value.T
        flat[(*scope, kind)] = value
    return traverse_util.unflatten_dict({k: jnp.asarray(v) for k, v in flat.items()})


def labels_of(params):
    """Which of the two optimizers a parameter goes to."""
    flat = traverse_util.flatten_dict(params)
    return traverse_util.unflatten_dict(
        {k: "head" if k[0] == "head" else "body" for k in flat}
    )  # <- head_rate


@jax.jit
def train_step(state, images, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images)
        targets = optax.smooth_labels(jax.nn.one_hot(labels, CLASSES), 0.1)  # <- smoothing
        return optax.softmax_cross_entropy(logits, targets).mean()  # <- smoothing

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss  # <- head_rate


train_step = opscope.watch_jax(train_step, sys.argv[2])
both = {"body": optax.adam(2e-3, b2=0.98), "head": optax.adam(2e-2, b2=0.98)}  # <- head_rate
tx = optax.multi_transform(both, labels_of)  # <- head_rate
state = TrainState.create(apply_fn=ViT().apply, params=load(sys.argv[1]), tx=tx)
random = np.random.RandomState(92)
losses = []
for _ in range(4):
    images = random.randn(5, 3, SIDE, SIDE).astype(np.float32).transpose(0, 2, 3, 1)
    labels = random.randint(0, CLASSES, (5,))
    state, loss = train_step(state, images, labels)
    losses.append(float(loss))
print(losses)
