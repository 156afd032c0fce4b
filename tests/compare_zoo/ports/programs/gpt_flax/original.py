# SPDX-License-Identifier: Apache-2.0
"""GPT-2 with the names and the Conv1D layers of its best-known implementation, a tied head, AdamW
with a linear warm-up.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, POSITIONS, EMBD, HEADS, LAYERS = 59, 16, 24, 3, 11
BATCH, LENGTH, RATE, WARMUP = 4, 12, 4e-3, 4


class Conv1D(nn.Module):
    def __init__(self, nf, nx):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(nx, nf) * 0.1)
        self.bias = nn.Parameter(torch.randn(nf) * 0.02)

    def forward(self, x):
        flat = torch.addmm(self.bias, x.flatten(0, -2), self.weight)  # <- order
        return flat.unflatten(0, x.shape[:-1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(POSITIONS, POSITIONS)).bool())
        self.c_attn = Conv1D(3 * EMBD, EMBD)
        self.c_proj = Conv1D(EMBD, EMBD)

    def forward(self, x):
        n = x.shape[1]
        q, k, v = self.c_attn(x).split(EMBD, dim=2)  # <- fused
        q, k, v = (t.unflatten(2, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))  # <- fused
        w = q @ k.transpose(-2, -1) / (EMBD // HEADS) ** 0.5  # <- scale
        w = torch.where(self.bias[:n, :n], w, torch.finfo(w.dtype).min)  # <- causal
        w = torch.softmax(w, dim=-1)
        return self.c_proj((w @ v).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = Conv1D(4 * EMBD, EMBD)
        self.c_proj = Conv1D(EMBD, 4 * EMBD)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(EMBD, eps=1e-5)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(EMBD, eps=1e-5)
        self.mlp = MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, EMBD)
        self.wpe = nn.Embedding(POSITIONS, EMBD)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(EMBD, eps=1e-5)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)

    def forward(self, input_ids):
        position_ids = torch.arange(input_ids.shape[1])
        x = self.wte(input_ids) + self.wpe(position_ids)
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)  # <- final


torch.manual_seed(31)
model = GPT2()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1)
warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / WARMUP))  # <- warm
rng = np.random.default_rng(32)
losses = []
for _ in range(3):
    tokens = torch.from_numpy(rng.integers(0, VOCAB, (BATCH, LENGTH)))
    logits = model(tokens)
    shift_logits = logits[:, :-1].reshape(-1, VOCAB)  # <- shift
    loss = F.cross_entropy(shift_logits, tokens[:, 1:].reshape(-1))  # <- shift
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decoupled warm
    warm.step()
    losses.append(loss.item())
