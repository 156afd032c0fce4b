# SPDX-License-Identifier: Apache-2.0
"""The same T5 as functions over a dictionary of weights, as a team has it that comes from JAX:
kernels turned, einsum throughout, buckets in NumPy, Adagrad by hand.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import einsum

HEADS, BUCKETS, FURTHEST, DEPTH, MODEL, VOCAB = 3, 8, 16, 2, 16, 32


def norm(x, scale, eps=1e-6):
    return F.rms_norm(x, (MODEL,), scale, eps)  # <- mean


def buckets(queries, keys, *, both_sides):
    distance = np.arange(keys)[None] - np.arange(queries)[:, None]
    number = BUCKETS // 2 if both_sides else BUCKETS
    offset = (distance > 0) * number if both_sides else np.zeros_like(distance)  # <- sides
    distance = np.abs(distance) if both_sides else -np.minimum(distance, 0)
    exact = number // 2
    with np.errstate(divide="ignore"):
        far = np.log(distance.astype(np.float32) / exact) / np.log(FURTHEST / exact)
    far = exact + (np.maximum(far, 0) * (number - exact)).astype(np.int64)
    return torch.tensor(
        offset + np.where(distance < exact, distance, far.clip(max=number - 1))
    )  # <- sides distance


def position_bias(table, queries, keys, *, both_sides):
    return table[buckets(queries, keys, both_sides=both_sides)].permute(
        2, 0, 1
    )  # <- sides distance


def attention(w, x, memory, bias=None):
    q = einsum("btd,dhk->bhtk", x, w["q"])
    k = einsum("bsd,dhk->bhsk", memory, w["k"])  # <- memory
    v = einsum("bsd,dhk->bhsk", memory, w["v"])
    logits = einsum("bhtk,bhsk->bhts", q, k)  # <- scale
    logits = logits if bias is None else logits + bias  # <- shared
    return einsum("bhts,bhsk,hkd->btd", logits.softmax(-1), v, w["o"])  # <- scale shared


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


def feed_forward(w, x):
    return (gelu_new(x @ w["wi_0"]) * (x @ w["wi_1"])) @ w["wo"]


def encode(w, x):
    bias = position_bias(w["bias"], x.shape[1], x.shape[1], both_sides=True)
    for layer in w["layers"]:
        h = norm(x, layer["norm"])
        x = x + attention(layer["attention"], h, h, bias)
        x = x + feed_forward(layer["mlp"], norm(x, layer["mlp_norm"]))
    return norm(x, w["final"])  # <- memory


def decode(w, x, memory):
    length = x.shape[1]
    bias = position_bias(w["bias"], length, length, both_sides=False)
    bias = bias + torch.where(torch.ones(length, length).tril() > 0, 0.0, -1e10)
    for number, layer in enumerate(w["layers"]):
        h = norm(x, layer["norm"])
        x = x + attention(layer["attention"], h, h, bias)
        h = norm(x, layer["cross_norm"])
        x = x + attention(layer["cross"], h, memory)  # <- memory
        x = x + feed_forward(layer["mlp"], norm(x, layer["mlp_norm"]))
    return norm(x, w["final"])


def loss_of(w, ids, labels):
    start = torch.zeros_like(labels[:, :1])
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    memory = encode(w["encoder"], w["table"][ids])  # <- memory
    out = decode(w["decoder"], w["table"][shifted], memory)
    logits = einsum("btd,vd->btv", out * MODEL**-0.5, w["table"])  # <- output
    log_probs = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    return -(log_probs * F.one_hot(labels, VOCAB)).sum(-1).mean()


def leaf(value):
    return value.detach().clone().contiguous().requires_grad_(True)


def kernels(state, prefix, *, out="o"):
    """An attention's kernels with the heads as an axis of their own."""
    made = {}
    for name in "qkv":
        made[name] = leaf(state[f"{prefix}.{name}.weight"].t().unflatten(1, (HEADS, -1)))
    made[out] = leaf(state[f"{prefix}.o.weight"].t().unflatten(0, (HEADS, -1)))
    return made


def stack(state, prefix):
    layers = []
    for i in range(DEPTH):
        at = f"{prefix}.block.{i}"
        layer = {"attention": kernels(state, f"{at}.attention")}
        layer["norm"] = leaf(state[f"{at}.norm.weight"])
        layer["mlp_norm"] = leaf(state[f"{at}.ff_norm.weight"])
        layer["mlp"] = {n: leaf(state[f"{at}.{n}.weight"].t()) for n in ("wi_0", "wi_1", "wo")}
        if prefix == "decoder":
            layer["cross"] = kernels(state, f"{at}.cross")
            layer["cross_norm"] = leaf(state[f"{at}.cross_norm.weight"])
        layers.append(layer)
    bias = leaf(state[f"{prefix}.block.0.attention.relative_attention_bias.weight"])
    return {
        "layers": layers,
        "bias": bias,
        "final": leaf(state[f"{prefix}.final_layer_norm.weight"]),
    }


def leaves(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [
        leaf
        for value in (tree.values() if isinstance(tree, dict) else tree)
        for leaf in leaves(value)
    ]


state = torch.load(sys.argv[1])
weights = {"table": leaf(state["shared.weight"])}
weights |= {part: stack(state, part) for part in ("encoder", "decoder")}
flat = leaves(weights)
squares = [torch.zeros_like(w) for w in flat]
rng = np.random.default_rng(9)
losses = []
for _ in range(2):
    source, target = (torch.tensor(rng.integers(1, VOCAB, (3, n))) for n in (12, 8))
    loss = loss_of(weights, source, target)
    gradients = torch.autograd.grad(loss, flat)
    with torch.no_grad():
        for w, s, g in zip(flat, squares, gradients):
            s.add_(g * g)
            w.sub_(0.01 * g / (s.sqrt() + 1e-10))
    losses.append(loss.item())
