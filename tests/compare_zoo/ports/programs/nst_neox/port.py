# SPDX-License-Identifier: Apache-2.0
"""Pythia-like decoder on a dict of arrays: per-head einsums, complex rotary, hand AdamW."""
import sys

import torch

D, H, L, ROT, VOCAB = 32, 4, 2, 4, 53
HD = D // H


def load(path):
    """Splits the fused projection [H * 3 * HD, D] into three [D, H, HD] arrays."""
    ck = torch.load(path, weights_only=True)
    P = {"wte": ck["embed_in.weight"], "head": ck["embed_out.weight"].t().contiguous()}
    P["lnf_g"], P["lnf_b"] = ck["final_layer_norm.weight"], ck["final_layer_norm.bias"]
    for i in range(L):
        at = f"layers.{i}."
        w = ck[at + "attention.query_key_value.weight"].view(H, 3, HD, D)
        b = ck[at + "attention.query_key_value.bias"].view(H, 3, HD)
        for j, c in enumerate("qkv"):
            P[f"{i}.w{c}"] = w[:, j].permute(2, 0, 1).contiguous()
            P[f"{i}.b{c}"] = b[:, j].contiguous()
        out = ck[at + "attention.dense.weight"].view(D, H, HD)
        P[f"{i}.wo"] = out.permute(1, 2, 0).contiguous()
        P[f"{i}.bo"] = ck[at + "attention.dense.bias"]
        for mine, theirs in (("up", "dense_h_to_4h"), ("down", "dense_4h_to_h")):
            P[f"{i}.w{mine}"] = ck[f"{at}{theirs}.weight"].t().contiguous()
            P[f"{i}.b{mine}"] = ck[f"{at}{theirs}.bias"]
        for mine, theirs in (("ln1", "input_layernorm"), ("ln2", "post_attention_layernorm")):
            P[f"{i}.{mine}_g"] = ck[f"{at}{theirs}.weight"]
            P[f"{i}.{mine}_b"] = ck[f"{at}{theirs}.bias"]
    return {k: v.clone().requires_grad_() for k, v in P.items()}


def ln(x, g, b):
    c = x - x.mean(-1, keepdim=True)
    return c / (c.square().mean(-1, keepdim=True) + 1e-5).sqrt() * g + b


def phases(T):
    w = 10000.0 ** (-torch.arange(0, ROT, 2).float() / ROT)  # <- rotary_table
    angle = torch.arange(T).float()[:, None] * w  # <- rotary_table
    return torch.polar(torch.ones_like(angle), angle)[:, None]


def rope(x, ph):
    half = ROT // 2
    z = torch.complex(x[..., :half], x[..., half:ROT]) * ph
    return torch.cat([z.real, z.imag, x[..., ROT:]], -1)


def phi(u):
    return u * 0.5 * (1 + torch.erf(u / 2 ** 0.5))  # <- gelu_form


def block(P, i, x, ph, future):
    p = {k.split(".", 1)[1]: v for k, v in P.items() if k.startswith(f"{i}.")}
    n = ln(x, p["ln1_g"], p["ln1_b"])
    q, k, v = (torch.einsum("btd,dhe->bthe", n, p["w" + c]) + p["b" + c] for c in "qkv")
    s = torch.einsum("bthe,bshe->bhts", rope(q, ph), rope(k, ph)) / HD ** 0.5
    a = (s + future).softmax(-1)
    mix = torch.einsum("bhts,bshe,hed->btd", a, v, p["wo"]) + p["bo"]
    m = ln(x, p["ln2_g"], p["ln2_b"])  # <- parallel_residual
    return x + mix + phi(m @ p["wup"] + p["bup"]) @ p["wdown"] + p["bdown"]  # <- gelu_form


def loss_fn(P, ids):
    T = ids.shape[1]
    ph = phases(T)
    future = torch.full((T, T), float("-inf")).triu(1)
    x = P["wte"][ids]
    for i in range(L):
        x = block(P, i, x, ph, future)
    z = ln(x, P["lnf_g"], P["lnf_b"]) @ P["head"]
    nll = z.logsumexp(-1)[:, :-1] - z[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return nll.mean()


params = load(sys.argv[1])
mom = {k: torch.zeros_like(v) for k, v in params.items()}
sec = {k: torch.zeros_like(v) for k, v in params.items()}
matrices = {k for k in params if k in ("wte", "head") or ".w" in k}  # <- decay_group
gen = torch.Generator().manual_seed(11)
losses = []
for t in range(1, 5):
    tokens = torch.randint(0, VOCAB, (3, 14), generator=gen)
    value = loss_fn(params, tokens)
    grads = torch.autograd.grad(value, list(params.values()))
    lr = 4e-3 * min(1.0, t / 3)  # <- warmup
    with torch.no_grad():
        for (k, p), g in zip(params.items(), grads):
            if k in matrices:  # <- decay_group
                p.mul_(1 - lr * 0.2)  # <- decay_group warmup
            mom[k].mul_(0.9).add_(g, alpha=0.1)
            sec[k].mul_(0.95).addcmul_(g, g, value=0.05)
            vhat = sec[k] / (1 - 0.95 ** t)
            p -= lr * (mom[k] / (1 - 0.9 ** t)) / (vhat.sqrt() + 1e-8)  # <- warmup
    losses.append(value.item())
print(losses)
