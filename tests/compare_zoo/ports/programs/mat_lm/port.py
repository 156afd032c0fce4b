# SPDX-License-Identifier: Apache-2.0
"""Causal LM, pure functions over stacked layer weights; complex rotary, one fused input matmul."""

import sys

import torch
from torch import einsum

V, D, Q_PER_KV, KV, L = 17, 16, 2, 2, 2
DH = D // (Q_PER_KV * KV)


def stacked(sd, *names):
    return torch.stack([torch.cat([sd[f"blocks.{i}.{n}.weight"] for n in names]) for i in range(L)])


def import_weights(sd):
    w = {
        "table": sd["tok.weight"],
        "qkv": stacked(sd, "att.q", "att.k", "att.v"),
        "merge": stacked(sd, "att.o"),
        "glu": stacked(sd, "gate", "up"),
        "shrink": stacked(sd, "down"),
        "norms": torch.stack(
            [torch.stack([sd[f"blocks.{i}.n{j}.scale"] for j in (1, 2)]) for i in range(L)]
        ),
        "last": sd["final.scale"],
    }
    return {k: v.clone().requires_grad_() for k, v in w.items()}


def rms(x, gain, eps=1e-2):
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # <- norm_eps
    return x / torch.sqrt(length**2 / D + eps) * gain  # <- norm_eps


def spin(x):
    """rotate (batch, time, ..., head) pairs as complex numbers"""
    steps = torch.arange(x.shape[1], dtype=torch.float32)
    speed = torch.exp(-torch.arange(DH // 2) * (2 / DH) * torch.log(torch.tensor(100.0)))
    phase = steps[:, None] * speed
    turn = torch.polar(torch.ones_like(phase), phase)
    pair = x.unflatten(-1, (2, DH // 2)).transpose(-1, -2).contiguous()  # <- rotary_pairs
    z = torch.view_as_complex(pair)  # <- rotary_pairs
    z = z * turn.view(1, len(steps), *[1] * (x.dim() - 3), DH // 2)  # <- rotary_pairs
    return torch.view_as_real(z).transpose(-1, -2).flatten(-2)  # <- rotary_pairs


def attend(x, w_in, w_out, bias):
    b, t, _ = x.shape
    q, k, v = (x @ w_in.T).split([D, KV * DH, KV * DH], -1)
    q = spin(q.view(b, t, KV, Q_PER_KV, DH)) * DH**-0.5  # <- kv_groups
    k, v = spin(k.view(b, t, KV, DH)), v.view(b, t, KV, DH)
    att = einsum("bqkgd,bskd->bkgqs", q, k) + bias[:, None, None]  # <- kv_groups
    att = torch.exp(att - att.amax(-1, keepdim=True).detach())
    att = att / att.sum(-1, keepdim=True)
    return einsum("bkgqs,bskd->bqkgd", att, v).reshape(b, t, D) @ w_out.T  # <- kv_groups


def logits_of(w, ids):
    n = torch.arange(ids.shape[1])
    seen = (n[:, None] >= n[None]) & ids.ne(0)[:, None, :] | (n[:, None] == n[None])
    bias = torch.where(seen, 0.0, -1e9)
    x = 4.0 * w["table"][ids]
    for i in range(L):
        x = x + attend(rms(x, w["norms"][i, 0]), w["qkv"][i], w["merge"][i], bias)
        gate, up = (rms(x, w["norms"][i, 1]) @ w["glu"][i].T).chunk(2, -1)
        x = x + (gate * gate.sigmoid() * up) @ w["shrink"][i].T
    return rms(x, w["last"]) @ w["table"].T


def smoothed_nll(z, target, amount=0.1):
    logp = z - z.logsumexp(-1, keepdim=True)
    hit = logp.gather(-1, target[..., None])[..., 0]
    row = -((1 - amount) * hit + amount * logp.mean(-1))  # <- smoothing
    real = target.gt(0).float()
    return (row * real).sum() / real.sum()


def soft_lion(w, grads, memory, lr=0.01, look=0.9, keep=0.98, wd=0.1):  # <- lion_betas
    for k, g in grads.items():
        direction = torch.lerp(g, memory[k], look)  # <- lion_betas
        w[k].data = w[k].data - lr * wd * w[k].data - lr * torch.tanh(50 * direction)
        memory[k] = torch.lerp(g, memory[k], keep)  # <- lion_betas


weights = import_weights(torch.load(sys.argv[1], weights_only=True))
memory = {k: torch.zeros_like(v) for k, v in weights.items()}
gen = torch.Generator().manual_seed(8)
losses = []
for _ in range(4):
    tokens = torch.randint(1, V, (3, 11), generator=gen)
    end = torch.tensor([11, 7, 9])
    tokens = tokens * (torch.arange(11) < end[:, None])
    loss = smoothed_nll(logits_of(weights, tokens[:, :-1]), tokens[:, 1:])
    found = torch.autograd.grad(loss, list(weights.values()))
    soft_lion(weights, dict(zip(weights, found)), memory)
    losses.append(loss.item())
print(losses)
