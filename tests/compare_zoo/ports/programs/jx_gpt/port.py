# SPDX-License-Identifier: Apache-2.0
"""The small GPT in plain JAX: parameters in nested dictionaries, optax for the updates."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import opscope

VOCAB, WIDTH, HEADS, LAYERS, BLOCK = 50, 32, 2, 2, 16


def load(path):
    """The names of PyTorch to a tree; matrices of linear layers turned to (in, out)."""
    tree = {"h": [{} for _ in range(LAYERS)]}
    for name, value in np.load(path).items():
        *scope, kind = name.split(".")
        place = tree["h"][int(scope[1])] if scope[0] == "h" else tree
        layer = place.setdefault(scope[-1], {})
        if value.ndim == 2 and scope[-1] not in ("wte", "wpe"):
            value = value.T
        layer[{"weight": "w", "bias": "b"}[kind]] = jnp.asarray(value)
    return tree  # <- tied


def linear(p, x):
    return x @ p["w"] + p["b"]


def layer_norm(p, x, eps=1e-5):
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + eps) * p["w"] + p["b"]


def attention(p, x):
    batch, size, _ = x.shape
    qkv = linear(p["c_attn"], x)
    q, k, v = qkv.reshape(batch, size, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)  # <- qkv_heads
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])  # <- scale
    causal = jnp.tril(jnp.ones((size, size), dtype=bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)  # <- scale causal
    context = jnp.einsum("bhqk,bhkd->bqhd", weights, v)
    return linear(p["c_proj"], context.reshape(batch, size, WIDTH))


def forward(params, tokens):
    x = params["wte"]["w"][tokens] + params["wpe"]["w"][: tokens.shape[1]]  # <- tied
    for p in params["h"]:
        x = x + attention(p, layer_norm(p["ln_1"], x))
        y = jax.nn.gelu(linear(p["c_fc"], layer_norm(p["ln_2"], x)), approximate=False)
        x = x + linear(p["mlp_proj"], y)
    x = layer_norm(params["ln_f"], x)
    return x @ params["wte"]["w"].T  # <- tied


def loss_fn(params, tokens):
    logits = forward(params, tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


schedule = optax.linear_schedule(0.25e-2, 1e-2, 3)  # <- warmup
optimizer = optax.chain(
    optax.clip_by_global_norm(0.5),
    optax.adamw(schedule, b1=0.9, b2=0.95, weight_decay=0.1),  # <- warmup
)  # <- warmup


@jax.jit
def step(params, opt_state, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    updates, opt_state = optimizer.update(grads, opt_state, params)  # <- warmup
    return optax.apply_updates(params, updates), opt_state, loss  # <- warmup


step = opscope.watch_jax(step, sys.argv[2])
params = load(sys.argv[1])
opt_state = optimizer.init(params)
random = np.random.RandomState(22)
losses = []
for _ in range(4):
    tokens = jnp.asarray(random.randint(0, VOCAB, (4, BLOCK + 1)))
    params, opt_state, loss = step(params, opt_state, tokens)
    losses.append(float(loss))
print(losses)
