# SPDX-License-Identifier: Apache-2.0
"""The Llama blocks in flax linen, trained by optax."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import traverse_util

import opscope

VOCAB, WIDTH, HEADS, KV_HEADS, HEAD, INNER, LAYERS, LENGTH = 48, 32, 4, 2, 8, 56, 2, 10


def rotary(x):
    """x: (batch, time, heads, head)."""
    frequencies = 1.0 / 10000.0 ** (np.arange(0, HEAD, 2) / HEAD)
    angles = np.outer(np.arange(x.shape[1]), frequencies).astype(np.float32)[None, :, None, :]
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = jnp.split(x, 2, axis=-1)  # <- rope_pairs
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)  # <- rope_pairs


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        def project(name, heads):
            return nn.DenseGeneral((heads, HEAD), use_bias=False, name=name)

        y = nn.RMSNorm(epsilon=1e-5, name="input_norm")(x)
        q = rotary(project("q_proj", HEADS)(y))  # <- rope_pairs
        k = rotary(project("k_proj", KV_HEADS)(y))  # <- rope_pairs
        v = project("v_proj", KV_HEADS)(y)
        batch, time = y.shape[:2]
        q = q.reshape(batch, time, KV_HEADS, HEADS // KV_HEADS, HEAD)  # <- kv_groups
        scores = jnp.einsum("btkgd,bskd->bkgts", q, k) / np.sqrt(HEAD)  # <- kv_groups
        causal = jnp.tril(jnp.ones((time, time), dtype=bool))
        weights = nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
        y = jnp.einsum("bkgts,bskd->btkgd", weights, v)  # <- kv_groups
        y = y.reshape(batch, time, HEADS * HEAD)  # <- kv_groups
        x = x + nn.Dense(WIDTH, use_bias=False, name="o_proj")(y)
        y = nn.RMSNorm(epsilon=1e-5, name="post_norm")(x)
        both = nn.Dense(2 * INNER, use_bias=False, name="gate_up")(y)
        gate, up = jnp.split(both, 2, axis=-1)  # <- gate_up
        return x + nn.Dense(WIDTH, use_bias=False, name="down_proj")(
            nn.silu(gate) * up
        )  # <- gate_up


class Llama(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCAB, WIDTH, name="embed")(tokens)
        for n in range(LAYERS):
            x = Block(name=f"layers_{n}")(x)
        x = nn.RMSNorm(epsilon=1e-5, name="norm")(x)
        return nn.Dense(VOCAB, use_bias=False, name="lm_head")(x)


def load(path):
    old, flat = np.load(path), {}
    for name in old.files:
        *scope, _ = name.replace("layers.", "layers_").split(".")
        value, module = old[name], scope[-1]
        if module in ("q_proj", "k_proj", "v_proj"):
            flat[(*scope, "kernel")] = value.T.reshape(WIDTH, -1, HEAD)
        elif module == "gate_proj":
            up = old[name.replace("gate", "up")]
            flat[(*scope[:-1], "gate_up", "kernel")] = np.concatenate([value, up]).T  # <- gate_up
        elif module == "embed":
            flat[(*scope, "embedding")] = value
        elif value.ndim == 1:
            flat[(*scope, "scale")] = value
        elif module != "up_proj":
            flat[(*scope, "kernel")] = value.T
    return traverse_util.unflatten_dict({k: jnp.asarray(v) for k, v in flat.items()})


model = Llama()
optimizer = optax.chain(optax.add_decayed_weights(0.02), optax.adam(4e-3))  # <- coupled_decay


def loss_fn(params, tokens, labels):
    logits = model.apply({"params": params}, tokens)[:, :-1]
    targets = labels[:, 1:]
    valid = targets != -100  # <- ignored
    each = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(valid, targets, 0))
    return jnp.where(valid, each, 0.0).sum() / valid.sum()  # <- ignored


@jax.jit
def step(params, opt_state, tokens, labels):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens, labels)
    updates, opt_state = optimizer.update(grads, opt_state, params)  # <- coupled_decay
    return optax.apply_updates(params, updates), opt_state, loss  # <- coupled_decay


step = opscope.watch_jax(step, sys.argv[2])
params = load(sys.argv[1])
opt_state = optimizer.init(params)
random = np.random.RandomState(52)
losses = []
for _ in range(4):
    tokens = random.randint(0, VOCAB, (4, LENGTH))
    prompt = random.randint(1, 6, (4, 1))
    labels = np.where(np.arange(LENGTH) < prompt, -100, tokens)
    params, opt_state, loss = step(params, opt_state, tokens, labels)
    losses.append(float(loss))
print(losses)
