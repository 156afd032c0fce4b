# SPDX-License-Identifier: Apache-2.0
"""The small ResNet in flax linen, channels last, with batch statistics in the train state."""

import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import traverse_util
from flax.training import train_state

import opscope

CLASSES = 5


class BatchNorm(nn.Module):
    """Batch norm whose running variance is unbiased, as that of PyTorch."""

    momentum: float = 0.9  # <- bn_momentum

    @nn.compact
    def __call__(self, x, train):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        mean_ = self.variable("batch_stats", "mean", jnp.zeros, x.shape[-1:])
        var_ = self.variable("batch_stats", "var", jnp.ones, x.shape[-1:])
        mean, var = mean_.value, var_.value
        if train:
            mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
            n = x.size // x.shape[-1]
            mean_.value = self.momentum * mean_.value + (1 - self.momentum) * mean  # <- bn_momentum
            var_.value = self.momentum * var_.value + (1 - self.momentum) * var * n / (
                n - 1
            )  # <- bn_momentum
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * scale + bias  # <- bn_momentum


class BasicBlock(nn.Module):
    features: int
    stride: int

    @nn.compact
    def __call__(self, x, train):
        f, s = self.features, (self.stride,) * 2
        y = nn.Conv(f, (3, 3), s, padding=1, use_bias=False, name="conv1")(x)  # <- same_padding
        y = nn.relu(BatchNorm(name="bn1")(y, train))  # <- bn_momentum
        y = nn.Conv(f, (3, 3), padding=1, use_bias=False, name="conv2")(y)
        y = BatchNorm(name="bn2")(y, train)  # <- bn_momentum
        if self.stride != 1:
            x = nn.Conv(f, (1, 1), s, use_bias=False, name="down")(x)
        return nn.relu(y + x)


class ResNet(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(8, (3, 3), padding=1, use_bias=False, name="stem")(x)
        x = nn.relu(BatchNorm(name="bn")(x, train))  # <- bn_momentum
        x = BasicBlock(8, 1, name="block0")(x, train)
        x = BasicBlock(16, 2, name="block1")(x, train)
        x = nn.avg_pool(
            x, (3, 3), (2, 2), ((1, 1), (1, 1)), count_include_pad=True
        )  # <- pool_border
        x = nn.relu(nn.Dense(24, name="fc1")(x.reshape(x.shape[0], -1)))  # <- flatten
        return nn.Dense(CLASSES, name="fc2")(x)


def load(path):
    flat = {}
    for name, value in np.load(path).items():
        *scope, kind = name.split(".")
        if value.ndim == 4:
            kind, value = "kernel", value.transpose(2, 3, 1, 0)
        elif scope[-1] == "fc1" and value.ndim == 2:
            kind, value = (
                "kernel",
                value.reshape(-1, 16, 2, 2).transpose(2, 3, 1, 0).reshape(64, -1),
            )  # <- flatten
        elif value.ndim == 2:
            kind, value = "kernel", value.T
        elif kind == "weight":
            kind = "scale"
        flat[(*scope, kind)] = jnp.asarray(value)
    return traverse_util.unflatten_dict(flat)


class TrainState(train_state.TrainState):
    batch_stats: Any


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@jax.jit
def train_step(state, images, labels, held, held_labels):
    def loss_fn(params):
        variables = {"params": params, "batch_stats": state.batch_stats}
        logits, new = state.apply_fn(variables, images, True, mutable=["batch_stats"])
        return cross_entropy(logits, labels), new["batch_stats"]

    (loss, stats), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads, batch_stats=stats)  # <- nesterov
    logits = state.apply_fn({"params": state.params, "batch_stats": stats}, held, False)
    return state, loss, cross_entropy(logits, held_labels)


train_step = opscope.watch_jax(train_step, sys.argv[2])
tx = optax.chain(
    optax.add_decayed_weights(0.05), optax.sgd(0.05, momentum=0.9, nesterov=True)
)  # <- nesterov
model = ResNet()
stats = model.init(jax.random.key(0), jnp.zeros((1, 8, 8, 3)), False)["batch_stats"]
state = TrainState.create(apply_fn=model.apply, params=load(sys.argv[1]), tx=tx, batch_stats=stats)
random = np.random.RandomState(42)
held = random.randn(6, 3, 8, 8).astype(np.float32).transpose(0, 2, 3, 1)
held_labels = random.randint(0, CLASSES, (6,))
losses = []
for _ in range(4):
    images = (1.5 * random.randn(6, 3, 8, 8) + 0.5).astype(np.float32).transpose(0, 2, 3, 1)
    labels = random.randint(0, CLASSES, (6,))
    state, loss, valid = train_step(state, images, labels, held, held_labels)
    losses.append(float(loss) + float(valid))
print(losses)
