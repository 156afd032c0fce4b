# SPDX-License-Identifier: Apache-2.0
"""Decoder with learnt prompt on stacked layer weights; slow and fast copies are separate trees."""
import sys
import torch

torch.set_num_threads(1)
V, D, H, P, T, SCALE = 13, 12, 3, 2, 6, 1024.0
STACKED = {
    "n1": "norm1.weight", "n1b": "norm1.bias", "n2": "norm2.weight", "n2b": "norm2.bias",
    "qkv": "attn.in_proj_weight", "qkvb": "attn.in_proj_bias",
    "o": "attn.out_proj.weight", "ob": "attn.out_proj.bias",
    "g1": "ff1.parametrizations.weight.original0",
    "v1": "ff1.parametrizations.weight.original1", "f1b": "ff1.bias",
    "g2": "ff2.parametrizations.weight.original0",
    "v2": "ff2.parametrizations.weight.original1", "f2b": "ff2.bias",
}


def import_weights(path):
    sd = torch.load(path, weights_only=True)
    p = {k: torch.stack([sd[f"layers.{i}.{n}"] for i in (0, 1)]) for k, n in STACKED.items()}
    # heads on an axis of their own: layer, (q k v), head, per-head, in
    p["qkv"] = p["qkv"].reshape(2, 3, H, D // H, D)
    p["qkvb"] = p["qkvb"].reshape(2, 3, H, 1, D // H)
    p["o"] = p["o"].reshape(2, D, H, D // H)
    p.update(prompt=sd["prompt"], pos=sd["pos"], head=sd["out.weight"], headb=sd["out.bias"])
    return p, sd["tok.weight"]


def standardize(x):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


def gelu(x):
    return x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x ** 3))


def wn(x, g, v, b):
    return (x @ v.T) * (g / v.norm(dim=1, keepdim=True)).T + b  # <- norm_axis


def layer(p, i, x, bias):
    at = lambda k: p[k][i]
    h = standardize(x) * at("n1") + at("n1b")
    q, k, v = torch.einsum("btd,chkd->cbhtk", h, at("qkv")) + at("qkvb").unsqueeze(1)
    a = torch.softmax(q @ k.transpose(-1, -2) / (D // H) ** 0.5 + bias, -1) @ v
    x = x + torch.einsum("bhtk,dhk->btd", a, at("o")) + at("ob")
    h = standardize(x) * at("n2") + at("n2b")
    return x + wn(gelu(wn(h, at("g1"), at("v1"), at("f1b"))), at("g2"), at("v2"), at("f2b"))


def lm_loss(p, table, ids):
    emb = table[ids[:, :-1]]
    x = torch.cat((p["prompt"].repeat(len(ids), 1, 1), emb), 1) + p["pos"]
    bias = torch.full((P + T, P + T), float("-inf")).triu(1)  # <- mask_shift
    for i in range(2):
        x = layer(p, i, x, bias)
    logp = torch.log_softmax(x[:, P:] @ p["head"].T + p["headb"], -1)
    return -logp.gather(2, ids[:, 1:, None]).mean()  # <- target_shift


def accumulate(p, table, micros):
    total, acc = 0.0, None
    for ids in micros:
        fresh = {k: v.detach().requires_grad_() for k, v in p.items()}
        loss = lm_loss(fresh, table, ids)
        g = torch.autograd.grad(loss * (SCALE / len(micros)), list(fresh.values()))
        acc = g if acc is None else [a + b for a, b in zip(acc, g)]
        total += loss.item() / len(micros)
    return total, {k: a / SCALE for k, a in zip(p, acc)}  # <- unscaled


def clipped(g, limit=1.0):
    norm = torch.cat([t.flatten() for t in g.values()]).norm()  # <- unscaled
    return {k: t * torch.clamp(limit / (norm + 1e-6), max=1.0) for k, t in g.items()}  # <- unscaled


fast, table = import_weights(sys.argv[1])
slow, mom = dict(fast), {}
gen = torch.Generator().manual_seed(62)
losses = []
for step in range(5):
    micros = [torch.randint(0, V, (4, T + 1), generator=gen) for _ in range(2)]
    value, g = accumulate(fast, table, micros)
    g = clipped(g)  # <- unscaled
    mom = {k: g[k] if k not in mom else 0.9 * mom[k] + g[k] for k in g}
    fast = {k: fast[k] - 0.2 * mom[k] for k in fast}
    if step % 2:  # <- sync_shift
        slow = {k: 0.5 * (slow[k] + fast[k]) for k in slow}  # <- sync_shift
        fast = slow  # <- sync_shift
    losses.append(value)

print(losses)
