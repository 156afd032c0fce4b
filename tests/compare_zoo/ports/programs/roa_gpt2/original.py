# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 style language model: AdamW in two groups, warmup then cosine, clipping by global norm."""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1337)

VOCAB, CONTEXT, WIDTH, HEADS, LAYERS = 61, 16, 32, 4, 2
STEPS, WARMUP, LR, MIN_LR = 5, 2, 6e-3, 6e-4


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * width, width),
        )

    def forward(self, x, mask):
        h = self.ln_1(x)
        a, _ = self.attn(h, h, h, attn_mask=mask, need_weights=False)  # <- attn_scale
        x = x + a
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList([Block(WIDTH, HEADS) for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.apply(self._init)
        self.lm_head.weight = self.wte.weight

    def _init(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.08)
        elif isinstance(module, nn.MultiheadAttention):
            nn.init.normal_(module.in_proj_weight, std=0.2)
            nn.init.normal_(module.in_proj_bias, std=0.1)

    def forward(self, idx):
        n = idx.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        x = self.wte(idx) + self.wpe(torch.arange(n))
        for block in self.h:
            x = block(x, mask)
        return self.lm_head(self.ln_f(x))


def configure_optimizer(model):
    decay, rest = [], []
    for p in model.parameters():
        (decay if p.dim() >= 2 else rest).append(p)  # <- decay_everything
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]  # <- decay_everything
    return torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)


def factor(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LR / LR + 0.5 * (1 + math.cos(math.pi * done)) * (1 - MIN_LR / LR)


model = GPT()
torch.save(model.state_dict(), sys.argv[1])
optimizer = configure_optimizer(model)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)  # <- schedule_late

gen = torch.Generator().manual_seed(7)
stream = torch.randint(0, VOCAB, (600,), generator=gen)
stream[1::3] = (stream[0:-1:3] * 3 + 1) % VOCAB

losses = []
for step in range(STEPS):
    starts = torch.randint(0, len(stream) - CONTEXT - 1, (6,), generator=gen)
    batch = torch.stack([stream[i : i + CONTEXT + 1] for i in starts.tolist()])
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))  # <- targets_unshifted
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip_per_tensor
    optimizer.step()  # <- decay_everything schedule_late
    scheduler.step()  # <- schedule_late
    losses.append(loss.item())
print(losses)
