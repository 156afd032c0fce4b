# SPDX-License-Identifier: Apache-2.0
"""Mixture of experts (top 2 of 4), all experts computed densely; cross entropy per batch."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(29)


class MoE(nn.Module):
    def __init__(self, d=16, experts=4, classes=6):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.router = nn.Linear(d, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 32), nn.GELU(), nn.Linear(32, d)) for _ in range(experts)
        )
        self.head = nn.Linear(d, classes)

    def forward(self, x):
        h = self.norm(x)
        scores = self.router(h)
        top, idx = scores.topk(2, dim=-1)
        gate = torch.zeros_like(scores).scatter(1, idx, top.softmax(-1))
        y = torch.stack([e(h) for e in self.experts], 1)
        return self.head(x + (gate[..., None] * y).sum(1))


moe = MoE()
nn.init.uniform_(moe.norm.weight, 0.5, 1.5)
nn.init.normal_(moe.norm.bias, std=0.3)
nn.init.normal_(moe.router.weight, std=0.6)
for e in moe.experts:
    nn.init.normal_(e[2].weight, std=0.4)
torch.save(moe.state_dict(), sys.argv[1])
moe.eval()

g = torch.Generator().manual_seed(119)
losses = []
with torch.inference_mode():
    for b in range(4):
        x = torch.randn(30, 16, generator=g)
        y = torch.randint(0, 6, (30,), generator=g)
        losses.append(F.cross_entropy(moe(x), y).item())
        print(f"batch {b}: {losses[-1]:.4f}")
print(losses)
