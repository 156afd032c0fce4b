# SPDX-License-Identifier: Apache-2.0
"""The classifier as pure functions over a nested dict, with an optax-like chain of transforms."""
import math
import sys

import torch
from torch.func import grad_and_value
from torch.utils._pytree import tree_map


def dense(p, x):
    return x @ p["kernel"] + p["bias"]


def layer_norm(p, x, epsilon=1e-5):  # <- ln_eps
    mu = x.mean(-1, keepdim=True)
    var = (x * x).mean(-1, keepdim=True) - mu * mu
    return (x - mu) * torch.rsqrt(var + epsilon) * p["scale"] + p["bias"]  # <- ln_eps


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))  # <- gelu_form


def attention(p, x, valid):
    q, k, v = (torch.einsum("bld,dhk->blhk", x, p[n]["kernel"]) + p[n]["bias"] for n in "qkv")
    weights = torch.einsum("bqhk,bshk->bhqs", q / q.shape[-1] ** 0.5, k)
    weights = torch.softmax(torch.where(valid[:, None, None], weights, -1e30), -1)
    mixed = torch.einsum("bhqs,bshk->bqhk", weights, v)
    return torch.einsum("bqhk,hkd->bqd", mixed, p["out"]["kernel"]) + p["out"]["bias"]


def apply(params, ids, lengths):
    valid = torch.arange(ids.shape[1]) < lengths[:, None]
    x = params["embed"]["embedding"][ids] + params["posemb"]
    for name in ("block_0", "block_1"):
        p = params[name]
        x = x + attention(p["attn"], layer_norm(p["ln_0"], x), valid)
        x = x + dense(p["mlp_1"], gelu(dense(p["mlp_0"], layer_norm(p["ln_1"], x))))
    keep = valid.to(x.dtype)
    pooled = torch.einsum("bld,bl->bd", x, keep) / keep.sum(1, keepdim=True)  # <- pool_length
    return dense(params["head"], pooled)


def loss_fn(params, ids, lengths, labels):
    logp = torch.log_softmax(apply(params, ids, lengths), -1)
    return -(torch.nn.functional.one_hot(labels, 5) * logp).sum(-1).mean()


def leaves(tree, path=()):
    if isinstance(tree, dict):
        return [leaf for k in tree for leaf in leaves(tree[k], path + (k,))]
    return [(path, tree)]


def clip_by_global_norm(limit, grads):
    norm = torch.sqrt(sum((g ** 2).sum() for _, g in leaves(grads)))
    return tree_map(lambda g: torch.where(norm < limit, g, g * (limit / norm)), grads)


def scale_by_adam(grads, state, b1=0.9, b2=0.98, eps=1e-6):
    t = state["count"] + 1
    mu = tree_map(lambda g, m: b1 * m + (1 - b1) * g, grads, state["mu"])
    nu = tree_map(lambda g, n: b2 * n + (1 - b2) * g * g, grads, state["nu"])
    out = tree_map(
        lambda m, n: m / (1 - b1 ** t) / (torch.sqrt(n / (1 - b2 ** t)) + eps), mu, nu
    )
    return out, {"count": t, "mu": mu, "nu": nu}


def schedule(count, peak=0.01, warmup=2, total=6):
    if count < warmup:
        return peak * (count + 1) / (warmup + 1)  # <- schedule_shift
    return peak * (1 + math.cos(math.pi * (count - warmup) / (total - warmup))) / 2


def decay_mask(params):
    return tree_map(lambda _: 0.0, params) | {"head": {"kernel": 1.0, "bias": 0.0}} | {
        name: {
            "ln_0": {"scale": 0.0, "bias": 0.0},  # <- decay_mask
            "ln_1": {"scale": 0.0, "bias": 0.0},  # <- decay_mask
            "mlp_0": {"kernel": 1.0, "bias": 0.0}, "mlp_1": {"kernel": 1.0, "bias": 0.0},
            "attn": {k: {"kernel": 1.0, "bias": 0.0} for k in ("q", "k", "v", "out")},
        } for name in ("block_0", "block_1")}


def convert(w):
    tree = {"embed": {"embedding": w["tok.weight"]}, "posemb": w["pos"],
            "head": {"kernel": w["head.weight"].T, "bias": w["head.bias"]}}
    for i in range(2):
        b = {k.removeprefix(f"blocks.{i}."): v for k, v in w.items()}
        attn = {n: {"kernel": b["attn.in_proj_weight"].chunk(3)[j].T.reshape(16, 2, 8),
                    "bias": b["attn.in_proj_bias"].chunk(3)[j].reshape(2, 8)}
                for j, n in enumerate("qkv")}
        attn["out"] = {"kernel": b["attn.out_proj.weight"].T.reshape(2, 8, 16),
                       "bias": b["attn.out_proj.bias"]}
        tree[f"block_{i}"] = {
            "ln_0": {"scale": b["ln1.weight"], "bias": b["ln1.bias"]},
            "ln_1": {"scale": b["ln2.weight"], "bias": b["ln2.bias"]}, "attn": attn,
            "mlp_0": {"kernel": b["up.weight"].T, "bias": b["up.bias"]},
            "mlp_1": {"kernel": b["down.weight"].T, "bias": b["down.bias"]}}
    return tree


params = convert(torch.load(sys.argv[1], weights_only=True))
mask = decay_mask(params)
zeros = tree_map(torch.zeros_like, params)
state = {"count": 0, "mu": zeros, "nu": zeros}
rng = torch.Generator().manual_seed(5)
losses = []
for step in range(5):
    ids = torch.randint(0, 40, (8, 10), generator=rng)
    lengths = torch.randint(3, 11, (8,), generator=rng)
    labels = torch.randint(0, 5, (8,), generator=rng)
    grads, loss = grad_and_value(loss_fn)(params, ids, lengths, labels)
    updates, state = scale_by_adam(clip_by_global_norm(0.5, grads), state)
    updates = tree_map(lambda u, p, m: u + 0.1 * m * p, updates, params, mask)  # <- decay_mask
    lr = schedule(step)  # <- schedule_shift
    params = tree_map(lambda p, u: p - lr * u, params, updates)  # <- schedule_shift decay_mask
    losses.append(loss.item())
print(losses)
