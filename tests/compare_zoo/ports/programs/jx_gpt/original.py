# SPDX-License-Identifier: Apache-2.0
"""A small GPT in the manner of nanoGPT with a tied head, trained by AdamW with warm-up and clipping."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, LAYERS, BLOCK = 50, 32, 2, 2, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.mlp_proj = nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x):
        batch, size, _ = x.shape
        q, k, v = self.c_attn(x).split(WIDTH, dim=2)  # <- qkv_heads
        q, k, v = (
            t.view(batch, size, HEADS, -1).transpose(1, 2) for t in (q, k, v)
        )  # <- qkv_heads
        scores = q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5  # <- scale
        future = torch.ones(size, size, dtype=torch.bool).triu(1)
        weights = F.softmax(scores.masked_fill(future, float("-inf")), dim=-1)  # <- scale causal
        return self.c_proj((weights @ v).transpose(1, 2).reshape(batch, size, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(BLOCK, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)
        for module in (self.wte, self.wpe):
            nn.init.normal_(module.weight, std=0.1)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))  # <- tied
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)  # <- tied


torch.manual_seed(21)
model = GPT()
with torch.no_grad():
    for block in model.h:
        block.c_attn.weight.mul_(3.0)
np.savez(sys.argv[1], **{name: p.detach().numpy() for name, p in model.named_parameters()})

optimizer = torch.optim.AdamW(
    model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1
)  # <- warmup
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda n: min(1.0, (n + 1) / 4)
)  # <- warmup
random = np.random.RandomState(22)
losses = []
for step in range(4):
    tokens = torch.from_numpy(random.randint(0, VOCAB, (4, BLOCK + 1)))
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()  # <- warmup
    scheduler.step()  # <- warmup
    losses.append(loss.item())
print(losses)
