# SPDX-License-Identifier: Apache-2.0
"""Language model of capacity-limited mixture-of-experts layers, dispatched expert by expert."""
import math
import sys
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

config = SimpleNamespace(vocab=48, dim=24, heads=6, kv_heads=2, experts=4, top_k=2, hidden=20,
                         layers=2, capacity_factor=1.0, eps=1e-5, theta=10000.0)


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.3 * torch.randn(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.eps) * self.weight


def apply_rotary(x):
    half = x.size(-1) // 2
    freq = config.theta ** (-torch.arange(half).float() / half)
    angle = torch.arange(x.size(1)).float()[:, None] * freq
    rot = torch.polar(torch.ones_like(angle), angle)[:, None]
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], half, 2))  # <- rotary
    return torch.view_as_real(pairs * rot).flatten(-2)  # <- rotary


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.hd = config.dim // config.heads
        self.wq = nn.Linear(config.dim, config.dim, bias=False)
        self.wk = nn.Linear(config.dim, config.kv_heads * self.hd, bias=False)
        self.wv = nn.Linear(config.dim, config.kv_heads * self.hd, bias=False)
        self.wo = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = apply_rotary(self.wq(x).view(b, t, -1, self.hd)).transpose(1, 2)
        k = apply_rotary(self.wk(x).view(b, t, -1, self.hd)).transpose(1, 2)
        v = self.wv(x).view(b, t, -1, self.hd).transpose(1, 2)
        groups = config.heads // config.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)  # <- groups
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.hd)  # <- groups
        scores = scores + torch.full((t, t), float("-inf")).triu(1)
        return self.wo((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.hidden, bias=False)
        self.w2 = nn.Linear(config.hidden, config.dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MoE(nn.Module):
    """Top-k routing; an expert takes the first `capacity` of its tokens, the others are dropped."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(config.dim, config.experts, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(config.experts))

    def forward(self, x):
        flat = x.flatten(0, 1)
        slots = len(flat) * config.top_k / config.experts * config.capacity_factor  # <- capacity
        weights, chosen = self.gate(flat).topk(config.top_k)  # <- renorm
        weights = weights.softmax(-1)  # <- renorm
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            token, rank = torch.where(chosen == e)  # <- order
            token, rank = token[: int(slots)], rank[: int(slots)]  # <- capacity order
            out[token] += weights[token, rank, None] * expert(flat[token])
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.moe = Attention(), MoE()
        self.attention_norm, self.ffn_norm = RMSNorm(config.dim), RMSNorm(config.dim)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.moe(self.ffn_norm(x))


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(config.vocab, config.dim), Block(), Block(),
                      RMSNorm(config.dim), nn.Linear(config.dim, config.vocab, bias=False))
for p in model.parameters():
    if p.dim() == 2:
        nn.init.normal_(p, std=1.3 / math.sqrt(p.size(1)))
torch.save(model.state_dict(), sys.argv[1])
model.eval()
gen = torch.Generator().manual_seed(13)
losses = []
with torch.no_grad():
    for _ in range(4):
        ids = torch.randint(0, config.vocab, (3, 13), generator=gen)
        logits = model(ids[:, :-1])
        losses.append(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item())
print(losses)
