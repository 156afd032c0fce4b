# SPDX-License-Identifier: Apache-2.0
"""The translator as in JAX: a dictionary of parameters, pure functions and einsum; its own Adam."""

import sys

import torch

PAD, D, H, V = 0, 24, 3, 31
K = D // H
OTHERS = 0.1 / V  # <- smoothing
RIGHT = 0.9 + 0.1 / V  # <- smoothing


def attention_params(theirs, prefix):
    q, k, v = theirs[f"{prefix}.in_proj_weight"].view(3, H, K, D).permute(0, 3, 1, 2)  # <- crossed
    bq, bk, bv = theirs[f"{prefix}.in_proj_bias"].view(3, H, K)
    bo = theirs[f"{prefix}.out_proj.bias"]
    out = theirs[f"{prefix}.out_proj.weight"].view(D, H, K).permute(1, 2, 0)
    return {"q": q, "k": k, "v": v, "bq": bq, "bk": bk, "bv": bv, "o": out, "bo": bo}


def layer_params(theirs, prefix, blocks):
    p = {}
    for n, block in enumerate(blocks, 1):
        norm = f"{prefix}.norm{n}"
        p[f"{block}_norm"] = {"scale": theirs[f"{norm}.weight"], "bias": theirs[f"{norm}.bias"]}
    for block, name in zip(blocks[:-1], ("self_attn", "multihead_attn"), strict=False):
        p[block] = attention_params(theirs, f"{prefix}.{name}")  # <- crossed
    p["mlp"] = {
        "wi": theirs[f"{prefix}.linear1.weight"].t(),
        "bi": theirs[f"{prefix}.linear1.bias"],
        "wo": theirs[f"{prefix}.linear2.weight"].t(),
        "bo": theirs[f"{prefix}.linear2.bias"],
    }
    return p


def convert(theirs):
    p = {"table": theirs["embedding.weight"], "logit_bias": theirs["bias"]}
    for side, blocks in (("encoder", ["self", "mlp"]), ("decoder", ["self", "cross", "mlp"])):
        top = f"transformer.{side}"
        p[side] = [layer_params(theirs, f"{top}.layers.{n}", blocks) for n in range(2)]
        norm = {"scale": theirs[f"{top}.norm.weight"], "bias": theirs[f"{top}.norm.bias"]}
        p[f"{side}_norm"] = norm
    return p


def leaves(tree):
    if torch.is_tensor(tree):
        return [tree]
    return [x for t in (tree.values() if isinstance(tree, dict) else tree) for x in leaves(t)]


def tree_map(f, tree):
    if isinstance(tree, dict):
        return {k: tree_map(f, t) for k, t in tree.items()}
    return [tree_map(f, t) for t in tree] if isinstance(tree, list) else f(tree)


def norm(p, x):
    centered = x - x.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    return centered * torch.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]


def attend(p, x, y, allowed):
    q = torch.einsum("btd,dhk->bhtk", x, p["q"]) + p["bq"][:, None]
    k = torch.einsum("bsd,dhk->bhsk", y, p["k"]) + p["bk"][:, None]  # <- crossed
    v = torch.einsum("bsd,dhk->bhsk", y, p["v"]) + p["bv"][:, None]  # <- crossed
    scores = torch.einsum("bhtk,bhsk->bhts", q, k) / K**0.5
    weights = torch.exp(scores - scores.amax(-1, keepdim=True).detach()) * allowed  # <- unmasked
    weights = weights / weights.sum(-1, keepdim=True)
    return torch.einsum("bhts,bhsk,hkd->btd", weights, v, p["o"]) + p["bo"]


def mlp(p, x):
    return torch.nn.functional.gelu(x @ p["wi"] + p["bi"]) @ p["wo"] + p["bo"]


def sines(length):
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def loss_fn(p, source, inputs, labels):
    seen = (source != PAD).float()[:, None, None]
    x = p["table"][source] * D**0.5 + sines(source.shape[1])
    for layer in p["encoder"]:
        h = norm(layer["self_norm"], x)
        x = x + attend(layer["self"], h, h, seen)
        x = x + mlp(layer["mlp"], norm(layer["mlp_norm"], x))
    memory = norm(p["encoder_norm"], x)
    size = inputs.shape[1]
    past = torch.tril(torch.ones(size, size)) * (inputs != PAD).float()[:, None, None]
    x = D**0.5 * p["table"][inputs] + sines(size)  # <- scale
    for layer in p["decoder"]:
        h = norm(layer["self_norm"], x)
        x = x + attend(layer["self"], h, h, past)
        x = x + attend(layer["cross"], norm(layer["cross_norm"], x), memory, seen)  # <- unmasked
        x = x + mlp(layer["mlp"], norm(layer["mlp_norm"], x))
    logits = torch.einsum("btd,vd->btv", norm(p["decoder_norm"], x), p["table"]) + p["logit_bias"]
    log_p = logits.log_softmax(-1)
    soft = torch.full_like(log_p, OTHERS)  # <- smoothing
    soft.scatter_(-1, labels[..., None], RIGHT)  # <- smoothing
    real = (labels != PAD).float()
    return -((soft * log_p).sum(-1) * real).sum() / real.sum()  # <- smoothing


def batch(key):
    source = torch.randint(3, V, (4, 8), generator=key)
    target = torch.randint(3, V, (4, 7), generator=key)
    source = source * (torch.arange(8) < torch.tensor([8, 5, 7, 4])[:, None])
    target = target * (torch.arange(7) < torch.tensor([5, 7, 4, 6])[:, None])
    return source, torch.cat((torch.ones(4, 1).long(), target[:, 1:-1]), 1), target[:, 1:]


params = tree_map(lambda t: t.clone().requires_grad_(), convert(torch.load(sys.argv[1])))
flat = leaves(params)
moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in flat]
key = torch.Generator().manual_seed(12)
losses = []
for t in range(1, 5):
    loss = loss_fn(params, *batch(key))
    grads = torch.autograd.grad(loss, flat)
    rate = 0.02 * min(t**-0.5, t * 3**-1.5)  # <- warmup
    with torch.no_grad():
        for p, g, (m, v) in zip(flat, grads, moments, strict=True):
            m.lerp_(g, 0.1)
            v.lerp_(g * g, 0.02)
            p.sub_(rate * (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-3))  # <- warmup
    losses.append(loss.item())
