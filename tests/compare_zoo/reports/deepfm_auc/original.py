# SPDX-License-Identifier: Apache-2.0
"""Click prediction with a deep factorisation machine; log loss of each batch."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(28)
FIELDS = [10, 20, 15, 8]


class DeepFM(nn.Module):
    def __init__(self, k=6):
        super().__init__()
        self.first = nn.ModuleList(nn.Embedding(n, 1) for n in FIELDS)
        self.second = nn.ModuleList(nn.Embedding(n, k) for n in FIELDS)
        self.deep = nn.Sequential(
            nn.Linear(k * 4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1)
        )
        self.bias = nn.Parameter(torch.randn(1) * 0.2)

    def forward(self, x):
        linear = sum(e(x[:, i]) for i, e in enumerate(self.first))
        v = torch.stack([e(x[:, i]) for i, e in enumerate(self.second)], 1)
        pairs = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1, keepdim=True)
        return (self.bias + linear + pairs + self.deep(v.flatten(1)))[:, 0]


model = DeepFM()
for e in list(model.first) + list(model.second):
    nn.init.normal_(e.weight, std=0.4)
bn = model.deep[1]
bn.running_mean.normal_(0, 0.2)
bn.running_var.uniform_(0.2, 0.8)
nn.init.uniform_(bn.weight, 0.5, 1.5)
torch.save(model.state_dict(), sys.argv[1])
model.eval()

g = torch.Generator().manual_seed(118)
losses = []
with torch.no_grad():
    for step in range(4):
        x = torch.stack([torch.randint(0, n, (40,), generator=g) for n in FIELDS], 1)
        click = (torch.rand(40, generator=g) < 0.3).float()
        loss = F.binary_cross_entropy_with_logits(model(x), click)
        losses.append(loss.item())
        print(f"step {step} logloss {losses[-1]:.4f}")
print(losses)
