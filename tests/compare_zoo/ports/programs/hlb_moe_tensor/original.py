# SPDX-License-Identifier: Apache-2.0
"""Sequence classifier with a top-2 mixture of small experts held in a ModuleList."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))  # <- half_split


class MoE(nn.Module):
    def __init__(self, dim, hidden, n_experts, top_k=2):
        super().__init__()
        self.router = nn.Linear(dim, n_experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(n_experts))
        self.top_k = top_k

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        probs = F.softmax(self.router(flat), dim=-1)
        weight, index = torch.topk(probs, self.top_k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)  # <- renorm
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            # always called, even with no tokens, so that every parameter gets a gradient
            token, slot = torch.where(index == e)
            out.index_add_(0, token, expert(flat[token]) * weight[token, slot, None])  # <- renorm
        load = (F.one_hot(index, len(self.experts)).float().sum(1).mean(0)  # <- load_scale
                / self.top_k)  # <- load_scale
        balance = len(self.experts) * (load * probs.mean(0)).sum()  # <- load_scale
        return out.view_as(x), balance


class Model(nn.Module):
    def __init__(self, vocab=40, dim=16, n_experts=12):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.ln = nn.LayerNorm(dim)
        self.moe = MoE(dim, 12, n_experts)
        self.cls = nn.Linear(dim, 4)

    def forward(self, ids):
        h = self.emb(ids)
        y, balance = self.moe(self.ln(h))
        return self.cls((h + y).mean(1)), balance  # <- time_major


torch.manual_seed(0)
model = Model()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.Adam(model.parameters(), lr=2e-3, eps=1e-6)  # <- adam_eps
gen = torch.Generator().manual_seed(9)
losses = []
for _ in range(4):
    ids = torch.randint(0, 40, (8, 10), generator=gen)
    y = ids[:, 0] % 4
    logits, balance = model(ids)
    loss = F.cross_entropy(logits, y) + 0.01 * balance
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()  # <- adam_eps
    losses.append(loss.item())
print(losses)
