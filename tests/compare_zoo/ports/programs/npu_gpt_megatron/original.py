# SPDX-License-Identifier: Apache-2.0
"""A GPT whole on one device, batch first: LayerNorm written out, causal attention by
einsum, tied output, micro batches accumulated, AdamW with linear warmup.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, LAYERS, LENGTH = 48, 32, 4, 2, 10


class LayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(1 + 0.2 * torch.randn(DIM))
        self.beta = nn.Parameter(0.2 * torch.randn(DIM))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return self.gamma * centred / torch.sqrt(variance + 1e-5) + self.beta


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(DIM, 3 * DIM)  # <- qkv_order
        self.c_proj = nn.Linear(DIM, DIM)  # <- row_bias

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.c_attn(x).split(DIM, dim=2)  # <- qkv_order
        q, k, v = (y.view(b, t, HEADS, -1) for y in (q, k, v))  # <- qkv_order
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(DIM // HEADS)
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        y = torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, DIM)
        return self.c_proj(y)  # <- row_bias


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(DIM, 4 * DIM)
        self.c_proj = nn.Linear(4 * DIM, DIM)  # <- row_bias

    def forward(self, x):
        x = self.c_fc(x)
        x = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return self.c_proj(x)  # <- row_bias


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn = LayerNorm(), CausalSelfAttention()
        self.ln_2, self.mlp = LayerNorm(), MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)  # <- tied
        self.wpe = nn.Embedding(LENGTH, DIM)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = LayerNorm()

    def forward(self, idx):
        x = self.wte(idx) + self.wpe.weight[: idx.shape[1]]  # <- tied
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.t()  # <- tied


torch.manual_seed(21)
model = GPT()
with torch.no_grad():
    model.wte.weight.mul_(0.3)
    for name, p in model.named_parameters():
        if name.endswith("c_proj.bias"):
            p.mul_(3)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4, weight_decay=0.05)  # <- tied
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 3, total_iters=2)  # <- warmup
generator = torch.Generator().manual_seed(22)
losses = []
for _ in range(4):
    tokens = torch.randint(VOCAB, (4, LENGTH + 1), generator=generator)
    keep = torch.rand((4, LENGTH), generator=generator) < 0.7
    keep[2:] &= torch.arange(LENGTH) < 6
    total = 0.0
    for part, mask in zip(tokens.chunk(2), keep.chunk(2)):
        logits = model(part[:, :-1]).transpose(1, 2)
        each = F.cross_entropy(logits, part[:, 1:], reduction="none")
        loss = (each * mask).sum() / keep.sum()  # <- micro_mean
        loss.backward()  # <- micro_mean
        total += loss.item()  # <- micro_mean
    optimizer.step()  # <- warmup tied
    schedule.step()  # <- warmup
    optimizer.zero_grad()
    losses.append(total)
