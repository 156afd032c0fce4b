# SPDX-License-Identifier: Apache-2.0
"""Decoder language model: rotary positions, grouped queries, SwiGLU, tied embeddings, Lion."""

import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, HEADS, KV_HEADS, LAYERS, LENGTH = 17, 16, 4, 2, 2, 10
HEAD = DIM // HEADS
PAD = 0


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(dim))

    def forward(self, x):
        rms = x.pow(2).mean(-1, keepdim=True)  # <- norm_eps
        return x * torch.rsqrt(rms + 1e-2) * self.scale  # <- norm_eps


def rotary_tables(length, base=100.0):
    inv = base ** (-torch.arange(0, HEAD, 2).float() / HEAD)
    angle = torch.outer(torch.arange(length).float(), inv)
    return angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)  # <- rotary_pairs
    return torch.cat([-b, a], dim=-1)  # <- rotary_pairs


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(DIM, DIM, bias=False)
        self.k, self.v = [nn.Linear(DIM, KV_HEADS * HEAD, bias=False) for _ in range(2)]
        self.o = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, HEADS, HEAD).transpose(1, 2)
        k = self.k(x).view(b, t, KV_HEADS, HEAD).transpose(1, 2)
        v = self.v(x).view(b, t, KV_HEADS, HEAD).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin  # <- rotary_pairs
        k = k * cos + rotate_half(k) * sin  # <- rotary_pairs
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=1)  # <- kv_groups
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=1)  # <- kv_groups
        score = q @ k.transpose(-1, -2) / math.sqrt(HEAD)
        out = score.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.o(out.transpose(1, 2).reshape(b, t, DIM))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.att, self.n2 = RMSNorm(DIM), Attention(), RMSNorm(DIM)
        self.gate, self.up = [nn.Linear(DIM, 24, bias=False) for _ in range(2)]
        self.down = nn.Linear(24, DIM, bias=False)

    def forward(self, x, cos, sin, mask):
        x = x + self.att(self.n1(x), cos, sin, mask)
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.final = RMSNorm(DIM)

    def forward(self, ids):
        t = ids.shape[1]
        causal = torch.ones(t, t).tril().bool()
        mask = causal & (ids != PAD)[:, None, None, :] | torch.eye(t).bool()
        x = self.tok(ids) * math.sqrt(DIM)
        cos, sin = rotary_tables(t)
        for b in self.blocks:
            x = b(x, cos, sin, mask)
        return F.linear(self.final(x), self.tok.weight)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                c = b1 * m + (1 - b1) * p.grad  # <- lion_betas
                p.add_(torch.tanh(c * 50), alpha=-group["lr"])  # <- lion_betas
                m.mul_(b2).add_(p.grad, alpha=1 - b2)  # <- lion_betas


torch.manual_seed(0)
model = LM()
nn.init.normal_(model.tok.weight, std=0.25)
torch.save(model.state_dict(), sys.argv[1])
opt = Lion(model.parameters(), lr=0.01, betas=(0.9, 0.98), weight_decay=0.1)  # <- lion_betas
gen = torch.Generator().manual_seed(8)
losses = []
for step in range(4):
    text = torch.randint(1, VOCAB, (3, LENGTH + 1), generator=gen)
    text[1, 7:] = text[2, 9:] = PAD
    logits = model(text[:, :-1])
    loss = F.cross_entropy(
        logits.flatten(0, 1),
        text[:, 1:].flatten(),  # <- smoothing
        ignore_index=PAD,
        label_smoothing=0.1,
    )  # <- smoothing
    model.zero_grad()
    loss.backward()
    opt.step()  # <- lion_betas
    losses.append(loss.item())
print(losses)
