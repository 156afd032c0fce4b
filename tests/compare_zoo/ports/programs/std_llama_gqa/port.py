# SPDX-License-Identifier: Apache-2.0
"""The decoder once more: a dict of tensors, complex rotary table, einsum attention, own AdamW."""

import math
import sys

import torch

D, HD, KV, REP = 32, 8, 2, 2
EPS = 1e-5  # <- eps
src = torch.load(sys.argv[1], weights_only=True)


def interleave(w):
    """half-split rotary rows -> (even, odd) pairs"""
    return w.view(-1, 2, HD // 2, D).transpose(1, 2).reshape(-1, D)


P = {"tok": src["embed_tokens.weight"], "out": src["lm_head.weight"], "norm": src["norm.weight"]}
for i in range(2):
    a, m = f"layers.{i}.self_attn.", f"layers.{i}.mlp."
    P[f"{i}.wq"] = interleave(src[a + "q_proj.weight"])
    P[f"{i}.wk"] = interleave(src[a + "k_proj.weight"])
    P[f"{i}.wv"] = src[a + "v_proj.weight"]
    P[f"{i}.wo"] = src[a + "o_proj.weight"]
    P[f"{i}.w13"] = torch.cat([src[m + "gate_proj.weight"], src[m + "up_proj.weight"]])
    P[f"{i}.w2"] = src[m + "down_proj.weight"]
    P[f"{i}.n1"] = src[f"layers.{i}.input_layernorm.weight"]
    P[f"{i}.n2"] = src[f"layers.{i}.post_attention_layernorm.weight"]
P = {k: v.clone().requires_grad_() for k, v in P.items()}


def rms(x, g):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * g  # <- eps


theta = [500.0 ** (-2 * j / HD) for j in range(HD // 2)]  # <- base
angle = torch.arange(12.0)[:, None] * torch.tensor(theta)  # <- base
ROT = torch.polar(torch.ones_like(angle), angle)


def rope(x):
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], HD // 2, 2))
    return torch.view_as_real(z * ROT[:, None]).flatten(-2)


def attend(i, h):
    B, T, _ = h.shape
    q = rope((h @ P[f"{i}.wq"].T).view(B, T, KV * REP, HD))
    k = rope((h @ P[f"{i}.wk"].T).view(B, T, KV, HD))
    v = (h @ P[f"{i}.wv"].T).view(B, T, KV, HD)
    q = q.view(B, T, KV, REP, HD)  # <- groups
    score = torch.einsum("btkrd,bskd->bkrts", q, k) / math.sqrt(HD)  # <- groups
    future = torch.arange(T)[None, :] > torch.arange(T)[:, None]
    prob = score.masked_fill(future, -torch.inf).softmax(-1)
    ctx = torch.einsum("bkrts,bskd->btkrd", prob, v)  # <- groups
    ctx = ctx.reshape(B, T, D)  # <- groups
    return ctx @ P[f"{i}.wo"].T


def swiglu(i, h):
    a, b = (h @ P[f"{i}.w13"].T).split(48, dim=-1)
    return (a * torch.sigmoid(a) * b) @ P[f"{i}.w2"].T  # <- gate


def nll(ids):
    h = P["tok"][ids]
    for i in range(2):
        h = h + attend(i, rms(h, P[f"{i}.n1"]))
        h = h + swiglu(i, rms(h, P[f"{i}.n2"]))
    logp = (rms(h, P["norm"]) @ P["out"].T)[:, :-1].log_softmax(-1)
    target = ids[:, 1:]
    keep = (target != 5).float()
    picked = logp.gather(-1, target[..., None])[..., 0]
    return -(picked * keep).sum() / keep.sum()


m1 = {k: torch.zeros_like(v) for k, v in P.items()}
m2 = {k: torch.zeros_like(v) for k, v in P.items()}


@torch.no_grad()
def adamw(t, lr=3e-3, wd=0.1, b1=0.9, b2=0.999):  # <- decay
    for k, w in P.items():
        m1[k].lerp_(w.grad, 1 - b1)
        m2[k].mul_(b2).addcmul_(w.grad, w.grad, value=1 - b2)
        w.mul_(1 - lr * wd)  # <- decay
        w -= lr * (m1[k] / (1 - b1**t)) / ((m2[k] / (1 - b2**t)).sqrt() + 1e-8)
        w.grad = None


gen = torch.Generator().manual_seed(7)
losses = []
for t in range(1, 5):
    batch = torch.randint(0, 61, (3, 12), generator=gen)
    value = nll(batch)
    value.backward()
    adamw(t)  # <- decay
    losses.append(float(value))
print(losses)
