# SPDX-License-Identifier: Apache-2.0
"""A small language model on one device, trained with AdamW, a warmup and a cosine."""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, HIDDEN, LAYERS = 48, 32, 4, 48, 2
STEPS, WARMUP = 5, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.gate_up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(WIDTH, dim=2)
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))  # <- bias_twice
        gate, up = self.gate_up(self.ln_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(32, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, p in self.named_parameters():
            if "weight" in name and p.dim() == 2:
                nn.init.normal_(p, std=0.15)
            elif name.endswith("bias"):
                nn.init.normal_(p, std=0.1)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        flat = self.lm_head(self.ln_f(x)).view(-1, VOCAB)
        targets = targets.view(-1)
        return F.cross_entropy(flat, targets, ignore_index=-1)  # <- chunk_gradient mean_of_means


def lr_scale(step):
    if step < WARMUP:
        return (step + 1) / WARMUP  # <- warmup
    ratio = (step - WARMUP) / (STEPS - WARMUP)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * ratio))


def main():
    torch.manual_seed(11)
    model = LanguageModel()
    torch.save(model.state_dict(), sys.argv[1])
    decay = [p for p in model.parameters() if p.dim() >= 2]  # <- decay
    rest = [p for p in model.parameters() if p.dim() < 2]  # <- decay
    groups = [
        {"params": decay, "weight_decay": 0.3},
        {"params": rest, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.95))  # <- decay
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_scale)  # <- warmup
    generator = torch.Generator().manual_seed(12)
    losses = []
    for _ in range(STEPS):
        tokens = torch.randint(VOCAB, (4, 13), generator=generator)
        lengths = torch.randint(5, 13, (4,), generator=generator)
        targets = tokens[:, 1:].clone()
        targets[torch.arange(12) >= lengths[:, None]] = -1
        loss = model(tokens[:, :-1], targets)
        optimizer.zero_grad()
        loss.backward()  # <- chunk_gradient
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip_each
        optimizer.step()  # <- clip_each decay warmup
        schedule.step()  # <- warmup
        losses.append(loss.item())
    return losses


losses = main()
