# SPDX-License-Identifier: Apache-2.0
"""JAX port of the character GPT: stacked layers under lax.scan, micro-batches under another scan, optax."""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import opscope
import optax
from jax import lax

VOCAB, CTX, DEPTH, HEADS, WIDTH, BATCH, MICRO = 40, 14, 2, 4, 32, 8, 2
HD = WIDTH // HEADS


def load(path):
    w = dict(np.load(path))

    def stack(fmt, fn=lambda a: a):
        return jnp.asarray(np.stack([fn(w[f"h.{i}.{fmt}"]) for i in range(DEPTH)]))

    layers = {name: stack("attn.c_attn.weight", lambda a, i=i: np.split(a, 3)[i].T) for i, name in enumerate("qkv")}
    layers["out"] = stack("attn.c_proj.weight", np.transpose)
    layers["up"] = stack("mlp.0.weight", np.transpose)
    layers["down"] = stack("mlp.2.weight", np.transpose)
    return {
        "tok": jnp.asarray(w["wte.weight"]), "pos": jnp.asarray(w["wpe.weight"]), "layers": layers,
        "unembed": jnp.asarray(w["lm_head.weight"].T),
    }


def standardize(x):
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)


def block(x, p):
    h = standardize(x)
    q, k, v = ((h @ p[name]).reshape(*x.shape[:2], HEADS, HD) for name in "qkv")
    score = jnp.einsum("bthk,bshk->bhts", q, k) * HD ** -0.5
    causal = jnp.tri(CTX, dtype=bool)
    prob = jax.nn.softmax(jnp.where(causal, score, jnp.finfo(score.dtype).min), axis=-1)
    x = x + jnp.einsum("bhts,bshk->bthk", prob, v).reshape(x.shape) @ p["out"]
    return x + jnp.maximum(standardize(x) @ p["up"], 0) @ p["down"], None


def loss_fn(params, tokens):
    x = params["tok"][tokens[:, :-1]] + params["pos"]
    x, _ = lax.scan(block, x, params["layers"])
    logits = standardize(x) @ params["unembed"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


params = load(sys.argv[1])
# clipping, moments and warmup on one long vector
tx = optax.flatten(optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adam(lambda count: 5e-3 * jnp.minimum(1.0, (count + 1) / 3), b1=0.9, b2=0.95),
))
opt_state = tx.init(params)


@jax.jit
def step(params, opt_state, tokens):
    def accumulate(carry, micro):
        total, grads = carry
        loss, g = jax.value_and_grad(lambda p: loss_fn(p, micro) / MICRO)(params)
        return (total + loss, jax.tree.map(jnp.add, grads, g)), None

    zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
    (total, grads), _ = lax.scan(accumulate, zero, tokens.reshape(MICRO, BATCH // MICRO, CTX + 1))
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, total


step = opscope.watch_jax(step, sys.argv[2])
rng = np.random.RandomState(42)
losses = []
for _ in range(4):
    first = rng.randint(0, VOCAB, size=(BATCH, 1))
    stride = rng.randint(1, 4, size=(BATCH, 1))
    tokens = (first + stride * np.arange(CTX + 1)[None]) % VOCAB
    params, opt_state, loss = step(params, opt_state, tokens.astype(np.int32))
    losses.append(float(loss))
print(losses)
