# SPDX-License-Identifier: Apache-2.0
"""Tiny prompt-tuned transformer: weight-normed MLP, Lookahead, loss scaling, micro-batches."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

torch.set_num_threads(1)
VOCAB, DIM, HEADS, PROMPT, LEN = 13, 12, 3, 2, 6
SCALE = 1024.0


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.norm2 = nn.LayerNorm(DIM)
        self.ff1 = weight_norm(nn.Linear(DIM, 2 * DIM))  # <- norm_axis
        self.ff2 = weight_norm(nn.Linear(2 * DIM, DIM))  # <- norm_axis

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.ff2(F.gelu(self.ff1(self.norm2(x)), approximate="tanh"))  # <- norm_axis


class PromptLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.prompt = nn.Parameter(0.2 * torch.randn(PROMPT, DIM))
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(0.1 * torch.randn(PROMPT + LEN, DIM))
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.out = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = torch.cat([self.prompt.expand(len(ids), -1, -1), self.tok(ids)], 1) + self.pos
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)  # <- mask_shift
        for layer in self.layers:
            x = layer(x, mask)
        return self.out(x[:, PROMPT:])


class Lookahead:
    def __init__(self, opt, k=2, alpha=0.5):
        self.opt, self.k, self.alpha, self.n = opt, k, alpha, 0
        self.slow = [[p.detach().clone() for p in g["params"]] for g in opt.param_groups]

    @torch.no_grad()
    def step(self):
        self.opt.step()
        self.n += 1
        if self.n % self.k == 0:  # <- sync_shift
            for group, slow in zip(self.opt.param_groups, self.slow):
                for p, s in zip(group["params"], slow):
                    s.add_(p - s, alpha=self.alpha)  # <- sync_shift
                    p.copy_(s)  # <- sync_shift


torch.manual_seed(0)
model = PromptLM()
torch.save(model.state_dict(), sys.argv[1])
model.tok.requires_grad_(False)
trainable = [p for p in model.parameters() if p.requires_grad]
opt = Lookahead(torch.optim.SGD(trainable, lr=0.2, momentum=0.9))

gen = torch.Generator().manual_seed(62)
losses = []
for step in range(5):
    total = 0.0
    model.zero_grad()
    for micro in range(2):
        ids = torch.randint(0, VOCAB, (4, LEN + 1), generator=gen)
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) / 2  # <- target_shift
        (loss * SCALE).backward()
        total += loss.item()
    for p in trainable:
        p.grad.div_(SCALE)  # <- unscaled
    nn.utils.clip_grad_norm_(trainable, 1.0)  # <- unscaled
    opt.step()
    losses.append(total)

print(losses)
