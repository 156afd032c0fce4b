# SPDX-License-Identifier: Apache-2.0
"""The LSTM forecaster in plain JAX with lax.scan and optax."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import opscope

HIDDEN, LENGTH, BATCH, INPUTS = 24, 10, 6, 6


def load(path):
    old = np.load(path)
    params = {"cells": []}
    for n in range(2):
        cell = {
            "wi": old[f"encoder.weight_ih_l{n}"].T,
            "wh": old[f"encoder.weight_hh_l{n}"].T,
            "bi": old[f"encoder.bias_ih_l{n}"],  # <- one_bias
            "bh": old[f"encoder.bias_hh_l{n}"],  # <- one_bias
        }
        params["cells"].append(cell)
    params["norm"] = {"scale": old["norm.weight"], "bias": old["norm.bias"]}
    params["head"] = {"w": old["head.weight"].T, "b": old["head.bias"]}
    return jax.tree.map(jnp.asarray, params)


def lstm(cell, xs):
    """xs: (time, batch, features)."""

    def tick(carry, x):
        h, c = carry
        gates = x @ cell["wi"] + cell["bi"] + h @ cell["wh"] + cell["bh"]  # <- one_bias
        i, f, g, o = jnp.split(gates, 4, axis=-1)  # <- gate_order
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)  # <- gate_order
        h = jax.nn.sigmoid(o) * jnp.tanh(c)  # <- gate_order
        return (h, c), h

    zeros = jnp.zeros((xs.shape[1], HIDDEN))
    return jax.lax.scan(tick, (zeros, zeros), xs)[1]  # <- gate_order one_bias


def predict(params, x):
    h = x.swapaxes(0, 1)
    for cell in params["cells"]:
        h = lstm(cell, h)  # <- gate_order one_bias
    h = h.swapaxes(0, 1)
    h = (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5)
    h = h * params["norm"]["scale"] + params["norm"]["bias"]
    return (h @ params["head"]["w"] + params["head"]["b"])[..., 0]


def loss_fn(params, x, y, valid):
    beta = 0.5  # <- beta
    each = optax.huber_loss(predict(params, x), y, delta=beta) / beta  # <- beta
    return (each * valid).sum() / valid.sum()  # <- mean_valid


optimizer = optax.adagrad(0.02, initial_accumulator_value=0.0, eps=1e-20)  # <- accumulator


@jax.jit
def step(params, opt_state, x, y, valid):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y, valid)
    updates, opt_state = optimizer.update(grads, opt_state)  # <- accumulator one_bias
    return optax.apply_updates(params, updates), opt_state, loss  # <- accumulator one_bias


step = opscope.watch_jax(step, sys.argv[2])
params = load(sys.argv[1])
opt_state = optimizer.init(params)  # <- accumulator
random = np.random.RandomState(32)
losses = []
for _ in range(4):
    x = random.randn(BATCH, LENGTH, INPUTS).astype(np.float32)
    y = (0.7 * random.randn(BATCH, LENGTH)).astype(np.float32)
    lengths = random.randint(3, LENGTH + 1, (BATCH,))
    valid = (np.arange(LENGTH) < lengths[:, None]).astype(np.float32)
    params, opt_state, loss = step(params, opt_state, x, y, valid)
    losses.append(float(loss))
print(losses)
