# SPDX-License-Identifier: Apache-2.0
"""The same GPT-2 as Flax has it: a tree of arrays whose layers are stacked for a scan, general
dense products with an axis of heads, gradients and optimizer state as values.
"""

import math
import re
import sys
from typing import NamedTuple

import numpy as np
import torch

NUM_HEADS, HEAD_DIM, FEATURES = 3, 8, 24


def tree_map(function, tree, *rest):
    if isinstance(tree, dict):
        return {k: tree_map(function, v, *(r[k] for r in rest)) for k, v in tree.items()}
    return function(tree, *rest)


def tree_leaves(tree):
    return [x for v in tree.values() for x in tree_leaves(v)] if isinstance(tree, dict) else [tree]


def value_and_grad(function):
    def both(params, *args):
        params = tree_map(lambda p: p.detach().requires_grad_(), params)
        value = function(params, *args)
        found = iter(torch.autograd.grad(value, tree_leaves(params), materialize_grads=True))
        return value.detach(), tree_map(lambda _: next(found), params)

    return both


def scan(body, carry, stacked):
    for layer in range(tree_leaves(stacked)[0].shape[0]):
        carry = body(carry, tree_map(lambda leaf, at=layer: leaf[at], stacked))
    return carry


def dense_general(params, inputs, axes=1):
    out = torch.tensordot(inputs, params["kernel"], dims=axes)  # <- order
    return out + params["bias"]


def layer_norm(params, x, epsilon=1e-5):
    mean = x.mean(-1, keepdim=True)
    mean2 = (x * x).mean(-1, keepdim=True)
    mul = torch.rsqrt(mean2 - mean * mean + epsilon) * params["scale"]
    return (x - mean) * mul + params["bias"]


def dot_product_attention(query, key, value, mask):
    weights = torch.einsum("...qhd,...khd->...hqk", query / math.sqrt(HEAD_DIM), key)  # <- scale
    weights = torch.softmax(torch.where(mask, weights, -1e10), dim=-1)  # <- causal
    return torch.einsum("...hqk,...khd->...qhd", weights, value)


def block(params, x, mask):
    h = layer_norm(params["ln_1"], x)
    qkv = dense_general(params["attn"]["qkv"], h)
    attended = dot_product_attention(*qkv.unbind(-3), mask)  # <- fused
    x = x + dense_general(params["attn"]["out"], attended, axes=2)
    h = dense_general(params["mlp"]["wi"], layer_norm(params["ln_2"], x))
    h = 0.5 * h * (1.0 + torch.tanh(0.7978845608028654 * (h + 0.044715 * h * h * h)))
    return x + dense_general(params["mlp"]["wo"], h)


def apply(params, tokens):
    length = tokens.shape[-1]
    mask = torch.arange(length)[:, None] >= torch.arange(length)  # <- causal
    x = params["wte"]["embedding"][tokens] + params["wpe"]["embedding"][:length]
    x = scan(lambda carry, layer: block(layer, carry, mask), x, params["hidden"])
    x = layer_norm(params["ln_f"], x)  # <- final
    return torch.einsum("...d,vd->...v", x, params["wte"]["embedding"])  # <- final


def loss_fn(params, tokens):
    logits, targets = apply(params, tokens)[:, :-1], tokens[:, 1:]  # <- shift
    log_normalizers = torch.logsumexp(logits, -1)  # <- shift
    label_logits = torch.take_along_dim(logits, targets[..., None], -1)[..., 0]  # <- shift
    return (log_normalizers - label_logits).mean()


def from_checkpoint(state):
    names = {re.match(r"h\.\d+", name).group() for name in state if name.startswith("h.")}
    names = sorted(names, key=lambda name: int(name[2:]))  # <- order

    def stack(suffix, *shape):
        return torch.stack([state[f"{name}.{suffix}"].reshape(shape) for name in names])  # <- order

    def norm(suffix):
        return {"scale": stack(f"{suffix}.weight", -1), "bias": stack(f"{suffix}.bias", -1)}

    def dense(suffix, inside, outside):
        kernel = stack(f"{suffix}.weight", *inside, *outside)
        return {"kernel": kernel, "bias": stack(f"{suffix}.bias", *outside)}

    width, heads = (FEATURES,), (NUM_HEADS, HEAD_DIM)
    return {
        "wte": {"embedding": state["wte.weight"]},
        "wpe": {"embedding": state["wpe.weight"]},
        "hidden": {
            "ln_1": norm("ln_1"),
            "attn": {
                "qkv": dense("attn.c_attn", width, (3, *heads)),
                "out": dense("attn.c_proj", heads, width),
            },
            "ln_2": norm("ln_2"),
            "mlp": {
                "wi": dense("mlp.c_fc", width, (4 * FEATURES,)),
                "wo": dense("mlp.c_proj", (4 * FEATURES,), width),
            },
        },
        "ln_f": {"scale": state["ln_f.weight"], "bias": state["ln_f.bias"]},
    }


class AdamState(NamedTuple):
    count: int
    mu: dict
    nu: dict


def warm_up(count, peak=4e-3, steps=4):
    return peak * min(1.0, (count + 1) / steps)  # <- warm


def adamw(grads, state, params, decay=0.1):
    count = state.count + 1
    mu = tree_map(lambda m, g: 0.9 * m + 0.1 * g, state.mu, grads)  # <- decoupled
    nu = tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, state.nu, grads)
    first, second = 1 - 0.9**count, 1 - 0.999**count
    updates = tree_map(lambda m, v: (m / first) / ((v / second).sqrt() + 1e-8), mu, nu)
    updates = tree_map(lambda u, p: u + decay * p, updates, params)  # <- decoupled
    rate = warm_up(state.count)
    updates = tree_map(lambda u: -rate * u, updates)  # <- warm
    return updates, AdamState(count, mu, nu)


params = from_checkpoint(torch.load(sys.argv[1]))
state = AdamState(0, tree_map(torch.zeros_like, params), tree_map(torch.zeros_like, params))
rng = np.random.default_rng(32)
losses = []
for _ in range(3):
    batch = torch.as_tensor(rng.integers(0, 59, (4, 12)))
    loss, grads = value_and_grad(loss_fn)(params, batch)
    updates, state = adamw(grads, state, params)
    params = tree_map(torch.add, params, updates)
    losses.append(loss.item())
