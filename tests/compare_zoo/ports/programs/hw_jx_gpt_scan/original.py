# SPDX-License-Identifier: Apache-2.0
"""minGPT-style character model with warmup and gradient clipping."""
import math
import sys

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(1337)

vocab_size, block_size, n_layer, n_head, n_embd, batch_size = 40, 14, 2, 4, 32, 8


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)
        mask = torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(n_embd, dim=2)
        q, k, v = (a.view(B, T, n_head, C // n_head).transpose(1, 2) for a in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd, elementwise_affine=False)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(n_embd, elementwise_affine=False)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, n_embd, bias=False),
            nn.ReLU(),
            nn.Linear(n_embd, n_embd, bias=False),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd, elementwise_affine=False)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.06)

    def forward(self, idx, targets):
        pos = torch.arange(idx.size(1))
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, vocab_size), targets.reshape(-1))


model = GPT()
np.savez(sys.argv[1], **{k: v.cpu().numpy() for k, v in model.state_dict().items()})
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.95))
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: min(1.0, (it + 1) / 3))
rng = np.random.RandomState(42)
losses = []
for it in range(4):
    start = rng.randint(0, vocab_size, size=(batch_size, 1))
    stride = rng.randint(1, 4, size=(batch_size, 1))
    data = torch.from_numpy((start + stride * np.arange(block_size + 1)) % vocab_size)
    x, y = data[:, :-1], data[:, 1:]
    loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
print(losses)
