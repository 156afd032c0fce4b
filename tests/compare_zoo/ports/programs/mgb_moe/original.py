# SPDX-License-Identifier: Apache-2.0
"""Mixture of experts (top 2, capacity, balance loss), tokens dispatched to experts by index."""
import math
import sys

import torch
from torch import nn
import torch.nn.functional as F

DIM, HIDDEN, EXPERTS, VOCAB = 12, 20, 4, 30


class MoE(nn.Module):
    def __init__(self, capacity_factor=1.1):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, DIM))
            for _ in range(EXPERTS)
        )
        self.capacity_factor = capacity_factor

    def forward(self, x):
        tokens = x.reshape(-1, DIM)
        n = tokens.shape[0]
        capacity = math.ceil(2 * n * self.capacity_factor / EXPERTS)
        probs = self.router(tokens).softmax(-1)
        gates, chosen = probs.topk(2, dim=-1)
        gates = gates / gates.sum(-1, keepdim=True)  # <- gate_norm
        share = torch.bincount(chosen[:, 0], minlength=EXPERTS) / n  # <- balance
        aux = EXPERTS * (share * probs.mean(0)).sum()  # <- balance

        # first choices are served before second choices
        flat_expert = chosen.t().reshape(-1)
        flat_gate = gates.t().reshape(-1)
        flat_token = torch.arange(n).repeat(2)
        out = torch.zeros_like(tokens)
        for e, expert in enumerate(self.experts):
            slots = (flat_expert == e).nonzero().squeeze(-1)[:capacity]  # <- queue
            rows = flat_token[slots]  # <- queue
            weighted = expert(tokens[rows]) * flat_gate[slots, None]  # <- gate_norm
            out = out.index_add(0, rows, weighted)  # <- queue
        return out.view_as(x), aux


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.norm = nn.RMSNorm(DIM, eps=1e-6)
        self.moe = MoE()
        self.out = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.embed(ids)
        y, aux = self.moe(self.norm(x))
        return self.out(x + y), aux


torch.manual_seed(0)
model = Model()
with torch.no_grad():
    model.moe.router.weight.mul_(3.0)
torch.save(model.state_dict(), sys.argv[1])

router = list(model.moe.router.parameters())
others = [p for n, p in model.named_parameters() if "router" not in n]
optimizer = torch.optim.SGD(
    [{"params": others, "lr": 0.5}, {"params": router, "lr": 0.05}],  # <- router_lr
    momentum=0.8,  # <- dampen
)
gen = torch.Generator().manual_seed(21)
losses = []
for _ in range(4):
    ids = torch.randint(0, VOCAB, (6, 9), generator=gen)
    logits, aux = model(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) + 0.05 * aux
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- router_lr dampen
    losses.append(loss.item())
print(losses)
