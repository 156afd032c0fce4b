# SPDX-License-Identifier: Apache-2.0
"""Llama-like character model with three next-token heads and a z-loss."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(101)

VOCAB, WIDTH, HEADS, KV_HEADS, LAYERS, LENGTH, FUTURE, BATCH, STEPS = 19, 24, 4, 2, 2, 12, 3, 4, 6
HEAD_WEIGHTS = [1.0, 0.5, 0.25]


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = WIDTH // HEADS
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj = nn.Linear(WIDTH, KV_HEADS * self.size, bias=False)
        self.v_proj = nn.Linear(WIDTH, KV_HEADS * self.size, bias=False)
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, HEADS, self.size).transpose(1, 2)
        k = self.k_proj(x).view(b, t, KV_HEADS, self.size).transpose(1, 2)
        v = self.v_proj(x).view(b, t, KV_HEADS, self.size).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = (z.repeat_interleave(HEADS // KV_HEADS, 1) for z in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.attention = Attention()
        self.gate = nn.Linear(WIDTH, 40, bias=False)
        self.up = nn.Linear(WIDTH, 40, bias=False)
        self.down = nn.Linear(40, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class MultiTokenLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.future = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(FUTURE))
        size = WIDTH // HEADS
        freq = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angle = torch.arange(LENGTH)[:, None] * freq
        self.register_buffer("cos", torch.cat([angle, angle], -1).cos())
        self.register_buffer("sin", torch.cat([angle, angle], -1).sin())

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        x = self.norm(x)
        return [F.linear(x + head(x), self.embedding.weight) for head in self.future]


model = MultiTokenLM()
torch.save(model.state_dict(), sys.argv[1])
g = torch.Generator().manual_seed(12)
text = torch.randint(0, VOCAB, (300,), generator=g)
text[::2] = text[::2] % 5
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [
    torch.optim.lr_scheduler.LinearLR(optimizer, 0.25, 1.0, total_iters=2),
    torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS - 2, eta_min=4e-4)], milestones=[2])

losses = []
for step in range(STEPS):
    starts = torch.randint(0, len(text) - LENGTH, (BATCH,), generator=g)
    ids = torch.stack([text[s:s + LENGTH] for s in starts])
    loss = 0.0
    for k, logits in enumerate(model(ids), start=1):
        logits, labels = logits[:, :-k], ids[:, k:]
        ce = F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))
        z = torch.logsumexp(logits, -1).pow(2).mean()
        loss = loss + HEAD_WEIGHTS[k - 1] * (ce + 1e-3 * z)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())

print(losses)
