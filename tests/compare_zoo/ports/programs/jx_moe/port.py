# SPDX-License-Identifier: Apache-2.0
"""The mixture of experts in plain JAX with dense dispatch and Adam by hand."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import opscope

VOCAB, WIDTH, EXPERTS, TOP, LENGTH, CLASSES = 40, 24, 4, 2, 8, 3


def load(path):
    old = np.load(path)

    def stacked(name, kind):
        return np.stack([old[f"moe.{name}.{e}.{kind}"] for e in range(EXPERTS)])

    params = {
        "embed": old["embed.weight"],
        "norm": {"scale": old["norm.weight"], "bias": old["norm.bias"]},
        "router": old["moe.router.weight"].T,
        "up": {"w": stacked("up", "weight").swapaxes(1, 2), "b": stacked("up", "bias")},
        "down": {
            "w": stacked("down", "weight").swapaxes(1, 2),
            "b": stacked("down", "bias"),
        },  # <- expert_layout
        "head": {"w": old["head.weight"].T, "b": old["head.bias"]},
    }
    return jax.tree.map(jnp.asarray, params)


def layer_norm(p, x):
    centered = x - x.mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]


def moe(params, x):
    logits = x @ params["router"]
    probs = jax.nn.softmax(logits, axis=-1)  # <- renormalized
    gates, chosen = jax.lax.top_k(probs, TOP)  # <- renormalized
    picked = jax.nn.one_hot(chosen, EXPERTS)
    combine = jnp.einsum("btk,btke->bte", gates, picked)  # <- renormalized
    hidden = jax.nn.relu(jnp.einsum("btd,edh->bteh", x, params["up"]["w"]) + params["up"]["b"])
    outs = (
        jnp.einsum("bteh,ehd->bted", hidden, params["down"]["w"]) + params["down"]["b"]
    )  # <- expert_layout
    share = picked.sum(2).mean((0, 1))  # <- balance
    balance = EXPERTS * (share * probs.mean((0, 1))).sum() / TOP  # <- balance
    return jnp.einsum("bted,bte->btd", outs, combine), balance  # <- renormalized


def loss_fn(params, tokens, mask, labels):
    x = params["embed"][tokens]
    y, balance = moe(params, layer_norm(params["norm"], x))
    x = x + y
    weights = mask[..., None].astype(jnp.float32)
    pooled = (x * weights).sum(1) / weights.sum(1)  # <- pooling
    logits = pooled @ params["head"]["w"] + params["head"]["b"]
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -picked.mean() + 0.1 * balance


def adam(p, g, m, v, t, rate=5e-3, b1=0.9, b2=0.999, eps=1e-8):
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    m_hat = m / (1 - b1**t)  # <- bias_correction
    v_hat = v / (1 - b2**t)  # <- bias_correction
    return p - rate * m_hat / (jnp.sqrt(v_hat) + eps), m, v  # <- bias_correction


@jax.jit
def grad_step(params, tokens, mask, labels):
    return jax.value_and_grad(loss_fn)(params, tokens, mask, labels)


@jax.jit
def update(params, grads, first, second, t):
    new = jax.tree.map(
        lambda p, g, m, v: adam(p, g, m, v, t), params, grads, first, second
    )  # <- bias_correction
    return jax.tree.transpose(jax.tree.structure(params), jax.tree.structure((0, 0, 0)), new)


grad_step = opscope.watch_jax(grad_step, sys.argv[2])
update = opscope.watch_jax(update, grad_step)
params = load(sys.argv[1])
first = jax.tree.map(jnp.zeros_like, params)
second = jax.tree.map(jnp.zeros_like, params)
random = np.random.RandomState(72)
losses = []
for i in range(4):
    tokens = random.randint(0, VOCAB, (6, LENGTH))
    lengths = random.randint(2, LENGTH + 1, (6, 1))
    labels = random.randint(0, CLASSES, (6,))
    mask = np.arange(LENGTH) < lengths
    loss, grads = grad_step(params, tokens, mask, labels)
    params, first, second = update(
        params, grads, first, second, jnp.float32(i + 1)
    )  # <- bias_correction
    losses.append(float(loss))
print(losses)
