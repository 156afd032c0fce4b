# SPDX-License-Identifier: Apache-2.0
"""Evaluate a small tabular classifier and report the mean cross entropy of each batch."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)


class TabNet(nn.Module):
    def __init__(self, n_in=12, width=24, n_out=5):
        super().__init__()
        self.fc1 = nn.Linear(n_in, width)
        self.bn1 = nn.BatchNorm1d(width)
        self.fc2 = nn.Linear(width, width)
        self.bn2 = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, n_out)

    def forward(self, x):
        x = F.relu(self.bn1(self.fc1(x)))
        x = F.relu(self.bn2(self.fc2(x)))
        return self.head(x)


model = TabNet()
for bn in (model.bn1, model.bn2):
    nn.init.uniform_(bn.weight, 0.5, 1.5)
    nn.init.normal_(bn.bias, std=0.3)
    bn.running_mean.normal_(0, 0.4)
    bn.running_var.uniform_(0.5, 2.0)
torch.save(model.state_dict(), sys.argv[1])
model.eval()

gen = torch.Generator().manual_seed(101)
losses = []
with torch.no_grad():
    for step in range(4):
        x = torch.randn(32, 12, generator=gen)
        y = torch.randint(0, 5, (32,), generator=gen)
        loss = F.cross_entropy(model(x), y)
        losses.append(loss.item())
        print(f"batch {step}: loss {losses[-1]:.4f}")
print(losses)
