# SPDX-License-Identifier: Apache-2.0
"""The tagger as pure functions over a tree of arrays: (in, heads, dim) kernels, einsum, optax-like update chain."""
import sys

import torch

torch.set_num_threads(1)

HEADS, LAYERS, TAGS, VOCAB, PAD, EPS = 4, 2, 5, 57, 1, 1e-5


def convert(path):
    """The torch checkpoint as a flat dictionary of kernels in (in, out) order."""
    sd = torch.load(path)
    tree = {}

    def dense(to, name, heads=None):
        kernel, bias = sd[name + ".weight"].T, sd[name + ".bias"]
        if heads == "out":
            kernel, bias = kernel.reshape(kernel.shape[0], HEADS, -1), bias.reshape(HEADS, -1)
        if heads == "in":
            kernel = kernel.reshape(HEADS, -1, kernel.shape[1])
        tree[to + "/kernel"], tree[to + "/bias"] = kernel, bias

    def norm(to, name):
        tree[to + "/scale"], tree[to + "/bias"] = sd[name + ".weight"], sd[name + ".bias"]

    emb = "roberta.embeddings."
    tree["embed/words"] = sd[emb + "word_embeddings.weight"]
    tree["embed/places"] = sd[emb + "position_embeddings.weight"]
    tree["embed/kind"] = sd[emb + "token_type_embeddings.weight"][0]
    norm("embed/norm", emb + "LayerNorm")
    for n in range(LAYERS):
        src = f"roberta.encoder.layer.{n}."
        for part in ("query", "key", "value"):
            dense(f"{n}/{part}", src + "attention.self." + part, "out")
        dense(f"{n}/out", src + "attention.output.dense", "in")
        norm(f"{n}/norm1", src + "attention.output.LayerNorm")
        dense(f"{n}/up", src + "intermediate.dense")
        dense(f"{n}/down", src + "output.dense")
        norm(f"{n}/norm2", src + "output.LayerNorm")
    dense("head", "classifier")
    return {k: v.clone().requires_grad_() for k, v in tree.items()}


def layer_norm(p, name, x):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + EPS) * p[name + "/scale"] + p[name + "/bias"]


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x * 2 ** -0.5))  # <- gelu_tanh


def attention(p, n, x, key_bias):
    q, k, v = (
        torch.einsum("btm,mhd->bhtd", x, p[f"{n}/{part}/kernel"]) + p[f"{n}/{part}/bias"][:, None]
        for part in ("query", "key", "value")
    )
    logits = torch.einsum("bhtd,bhsd->bhts", q * q.shape[-1] ** -0.5, k) + key_bias
    mixed = torch.einsum("bhts,bhsd->bthd", torch.softmax(logits, -1), v)
    return torch.einsum("bthd,hdm->btm", mixed, p[f"{n}/out/kernel"]) + p[f"{n}/out/bias"]


def apply(p, ids):
    real = ids != PAD
    places = torch.where(real, real.long().cumsum(1) + PAD, PAD)  # <- position_start
    x = p["embed/words"][ids] + p["embed/places"][places] + p["embed/kind"]
    x = layer_norm(p, "embed/norm", x)
    key_bias = torch.where(real, 0.0, -1e9)[:, None, None, :]
    for n in range(LAYERS):
        x = layer_norm(p, f"{n}/norm1", x + attention(p, n, x, key_bias))
        y = gelu(x @ p[f"{n}/up/kernel"] + p[f"{n}/up/bias"])  # <- gelu_tanh
        x = layer_norm(p, f"{n}/norm2", x + y @ p[f"{n}/down/kernel"] + p[f"{n}/down/bias"])
    return x @ p["head/kernel"] + p["head/bias"]


def smoothed_loss(p, ids, tags, counted, smoothing=0.1):
    logp = torch.log_softmax(apply(p, ids), dim=-1)
    hot = torch.eye(TAGS)[tags] * (1 - smoothing) + smoothing / TAGS
    per_token = -(hot * logp).sum(-1)
    return (per_token * counted).sum() / counted.sum()  # <- smooth_ignored


def clip_global(grads, limit):
    total = torch.stack([g.norm() for g in grads.values()]).norm()  # <- clip_each
    return {k: g * torch.clamp(limit / (total + 1e-6), max=1.0) for k, g in grads.items()}  # <- clip_each


def batches(steps=5, batch=4, length=13):
    g = torch.Generator().manual_seed(21)
    n = steps * batch
    tokens = torch.randint(3, VOCAB, (n, length), generator=g)
    tags = torch.randint(0, TAGS, (n, length), generator=g)
    continued = torch.rand(n, length, generator=g) < 0.25
    sizes = torch.randint(6, length + 1, (n, 1), generator=g)
    inside = torch.arange(length) < sizes
    ids = torch.where(inside, tokens, PAD)
    yield from zip(ids.split(batch), tags.split(batch), (inside & ~continued).float().split(batch))


def train(path):
    params = convert(path)
    trace = {k: torch.zeros_like(v) for k, v in params.items()}
    history = []
    for count, (ids, tags, counted) in enumerate(batches()):
        loss = smoothed_loss(params, ids, tags, counted)
        grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
        grads = clip_global(grads, 0.5)
        for k in params:
            rate = (0.2 if k.startswith("head/") else 0.05) * 0.6 ** count
            trace[k] = 0.9 * trace[k] + grads[k]  # <- velocity_has_rate
            params[k] = (params[k] - rate * trace[k]).detach().requires_grad_()  # <- velocity_has_rate
        history.append(loss.item())
    return history


losses = train(sys.argv[1])
print(losses)
