# SPDX-License-Identifier: Apache-2.0
"""Qwen3 as plain functions over a dictionary of arrays: one matrix for queries, keys and values of
a group of heads, rotations as complex numbers, an own AdamW.
"""

import sys

import torch

V, D, LAYERS, HEADS, KV, HD, PAD, EPS = 48, 32, 2, 4, 2, 12, 0, 1e-6
GROUP = HEADS // KV
THETA = 1000000.0  # <- theta


def paired(t):
    """Rows of the halves (i, i + HD / 2) of a head become neighbours (2 i, 2 i + 1)."""
    return t.unflatten(0, (-1, 2, HD // 2)).transpose(1, 2).flatten(0, 2)


def from_package(theirs):
    params = {"emb": theirs["model.embed_tokens.weight"], "out_g": theirs["model.norm.weight"]}
    for n in range(LAYERS):
        old = f"model.layers.{n}."
        q, k, v = (theirs[f"{old}self_attn.{x}_proj.weight"] for x in "qkv")
        q, k = paired(q).view(KV, GROUP, HD, D), paired(k).view(KV, 1, HD, D)
        qkv = torch.cat((q, k, v.view(KV, 1, HD, D)), 1)
        params[f"{n}/qkv"] = qkv.flatten(0, 2).t()
        for x in "qk":
            gain = theirs[f"{old}self_attn.{x}_norm.weight"]
            params[f"{n}/{x}_g"] = paired(gain)  # <- norm_order
        params[f"{n}/o"] = theirs[old + "self_attn.o_proj.weight"].t()
        params[f"{n}/att_g"] = theirs[old + "input_layernorm.weight"]
        params[f"{n}/mlp_g"] = theirs[old + "post_attention_layernorm.weight"]
        gate_up = [theirs[f"{old}mlp.{x}_proj.weight"] for x in ("gate", "up")]
        params[f"{n}/in"] = torch.cat(gate_up).t()
        params[f"{n}/down"] = theirs[old + "mlp.down_proj.weight"].t()
    return {name: t.clone().requires_grad_() for name, t in params.items()}


def rms(x, g):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + EPS) * g  # <- norm_order


def turned(x, turns):
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    shape = [1, len(turns)] + [1] * (z.dim() - 3) + [HD // 2]
    return torch.view_as_real(z * turns.view(shape)).flatten(-2)  # <- theta norm_order


def attend(p, n, x, turns):
    b, t, _ = x.shape
    mixed = (x @ p[f"{n}/qkv"]).view(b, t, KV, GROUP + 2, HD)
    q, k, v = mixed[..., :GROUP, :], mixed[..., GROUP, :], mixed[..., GROUP + 1, :]
    q = turned(rms(q, p[f"{n}/q_g"]), turns)  # <- norm_order theta
    k = turned(rms(k, p[f"{n}/k_g"]), turns)  # <- norm_order theta
    scores = torch.einsum("btkgh,bskh->bkgts", q, k) / HD**0.5
    later = torch.arange(t)[None] > torch.arange(t)[:, None]
    weights = torch.softmax(scores.masked_fill(later, -1e9), -1)
    mixture = torch.einsum("bkgts,bskh->btkgh", weights, v)  # <- groups
    return mixture.flatten(2) @ p[f"{n}/o"]  # <- groups


def forward(p, ids):
    x = p["emb"][ids]
    frequencies = THETA ** (-torch.arange(0, HD, 2) / HD)  # <- theta
    angles = torch.outer(torch.arange(ids.shape[1]), frequencies)  # <- theta
    turns = torch.polar(torch.ones_like(angles), angles)  # <- theta
    for n in range(LAYERS):
        x = x + attend(p, n, rms(x, p[f"{n}/att_g"]), turns)
        gate, up = (rms(x, p[f"{n}/mlp_g"]) @ p[f"{n}/in"]).chunk(2, -1)
        x = x + (gate * torch.sigmoid(gate) * up) @ p[f"{n}/down"]
    return rms(x, p["out_g"]) @ p["emb"].t()


def summed_nll(p, ids, kept):
    logp = torch.log_softmax(forward(p, ids[:, :-1]), -1)
    picked = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
    return -(picked * kept[:, 1:]).sum()  # <- tokens


p = from_package(torch.load(sys.argv[1]))
moments = {name: (torch.zeros_like(t), torch.zeros_like(t)) for name, t in p.items()}
rng = torch.Generator().manual_seed(71)
losses = []
for step in range(1, 5):
    total, count = 0.0, 0
    for _ in range(2):
        ids = torch.randint(1, V, (3, 10), generator=rng)
        kept = torch.arange(10) < torch.randint(4, 11, (3, 1), generator=rng)
        total = total + summed_nll(p, torch.where(kept, ids, PAD), kept.float())  # <- tokens
        count += kept[:, 1:].sum()  # <- tokens
    loss = total / count  # <- tokens
    grads = dict(zip(p, torch.autograd.grad(loss, list(p.values()))))
    norm = torch.sqrt(sum(g.square().sum() for g in grads.values()))
    lr = 4e-3 * min(1.0, step / 3)
    with torch.no_grad():
        for name, t in p.items():
            g = grads[name] * torch.clamp(1.0 / (norm + 1e-6), max=1.0)
            m, v = moments[name]
            m.lerp_(g, 0.1)
            v.lerp_(g * g, 0.05)
            decay = 0.0 if name.endswith("_g") else 0.1  # <- decay
            t.mul_(1 - lr * decay)  # <- decay
            t.sub_(lr * (m / (1 - 0.9**step)) / ((v / (1 - 0.95**step)).sqrt() + 1e-6))  # <- decay
    losses.append(loss.item())
