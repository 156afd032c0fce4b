# SPDX-License-Identifier: Apache-2.0
"""Llama-like decoder in functional JAX: stacked layers under lax.scan, einsum attention, own AdamW."""
import sys

import jax
import jax.numpy as jnp
import numpy as np

import opscope

N_LAYERS, HEADS, KV_HEADS, HEAD_DIM = 2, 4, 2, 8
EPS = 1e-5  # <- rms_eps


def rms_norm(x, scale):
    variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(variance + EPS) * scale  # <- rms_eps


def rotary(x, base=10000.0):
    """x: batch, time, heads, head_dim."""
    time, dim = x.shape[1], x.shape[-1]
    freq = base ** (-jnp.arange(0, dim, 2, dtype=jnp.float32) / dim)
    angle = jnp.arange(time, dtype=jnp.float32)[:, None] * freq
    sin, cos = jnp.sin(angle)[:, None, :], jnp.cos(angle)[:, None, :]
    a, b = x[..., :dim // 2], x[..., dim // 2:]  # <- rope_interleaved
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)  # <- rope_interleaved


def attention(p, x):
    split = x.shape[:2] + (-1, HEAD_DIM)
    q = rotary((x @ p["wq"]).reshape(split))
    k = rotary((x @ p["wk"]).reshape(split))
    v = (x @ p["wv"]).reshape(split)
    k = jnp.repeat(k, HEADS // KV_HEADS, axis=2)  # <- kv_heads_tiled
    v = jnp.repeat(v, HEADS // KV_HEADS, axis=2)  # <- kv_heads_tiled
    scores = jnp.einsum("bqhk,bshk->bhqs", q, k) / np.sqrt(HEAD_DIM)
    causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    probs = jax.nn.softmax(jnp.where(causal, scores, -1e30), axis=-1)
    mixed = jnp.einsum("bhqs,bshk->bqhk", probs, v)
    return mixed.reshape(x.shape) @ p["wo"]


def decoder_layer(x, p):
    x = x + attention(p, rms_norm(x, p["norm1"]))
    y = rms_norm(x, p["norm2"])
    gate, up = jnp.split(y @ p["w_in"], 2, axis=-1)
    return x + (jax.nn.silu(gate) * up) @ p["w_out"], None


def lm_loss(params, ids, labels):
    x, _ = jax.lax.scan(decoder_layer, params["embed"][ids], params["layers"])
    logp = jax.nn.log_softmax(rms_norm(x, params["norm"]) @ params["head"].T, axis=-1)[:, :-1]
    target = labels[:, 1:]
    weight = (target >= 0).astype(jnp.float32)  # <- mean_over_prompt
    picked = jnp.take_along_axis(logp, jnp.maximum(target, 0)[..., None], axis=-1)[..., 0]
    return -(picked * weight).sum() / weight.sum()  # <- mean_over_prompt


def adamw(grads, state, params, lr, b1=0.9, b2=0.95, eps=1e-8, decay=0.1):
    count, mu, nu = state
    count += 1
    mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, mu, grads)
    nu = jax.tree.map(lambda n, g: b2 * n + (1 - b2) * g * g, nu, grads)

    def new_value(p, m, n):
        m_hat, n_hat = m / (1 - b1 ** count), n / (1 - b2 ** count)
        return p - lr * (m_hat / (jnp.sqrt(n_hat) + eps) + decay * p)  # <- decay_in_gradient

    return jax.tree.map(new_value, params, mu, nu), (count, mu, nu)


@jax.jit
def step(params, opt_state, ids, labels):
    loss, grads = jax.value_and_grad(lm_loss)(params, ids, labels)
    params, opt_state = adamw(grads, opt_state, params, lr=2e-3)  # <- decay_in_gradient
    return params, opt_state, loss


step = opscope.watch_jax(step, sys.argv[2])


def from_torch(path):
    sd = np.load(path)

    def stack(fn):
        return jnp.asarray(np.stack([fn(f"layers.{i}.") for i in range(N_LAYERS)]))

    def projection(name):
        return stack(lambda s: sd[f"{s}self_attn.{name}_proj.weight"].T)

    layers = {
        "wq": projection("q"), "wk": projection("k"), "wv": projection("v"), "wo": projection("o"),
        "w_in": stack(lambda s: np.concatenate([sd[s + "gate_proj.weight"], sd[s + "up_proj.weight"]]).T),
        "w_out": stack(lambda s: sd[s + "down_proj.weight"].T),
        "norm1": stack(lambda s: sd[s + "input_layernorm.weight"]),
        "norm2": stack(lambda s: sd[s + "post_attention_layernorm.weight"]),
    }
    return {"embed": jnp.asarray(sd["embed_tokens.weight"]), "layers": layers,
            "norm": jnp.asarray(sd["norm.weight"]), "head": jnp.asarray(sd["lm_head.weight"])}


params = from_torch(sys.argv[1])
zeros = jax.tree.map(jnp.zeros_like, params)
opt_state = (jnp.zeros((), jnp.int32), zeros, zeros)
rng = np.random.RandomState(8)
losses = []
for _ in range(4):
    ids = rng.randint(0, 53, size=(4, 12)).astype(np.int32)
    first = rng.randint(2, 7, size=(4, 1))
    labels = np.where(np.arange(12) < first, -100, ids).astype(np.int32)
    params, opt_state, loss = step(params, opt_state, ids, labels)
    losses.append(float(loss))
print(losses)
