# SPDX-License-Identifier: Apache-2.0
"""A perceptron with layer norms, GELU and Adam."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)  # <- eps
        self.fc2 = nn.Linear(32, 32, bias=False)
        self.bn = nn.BatchNorm1d(32)  # <- momentum
        self.fc3 = nn.Linear(32, 4)

    def forward(self, x):
        x = F.gelu(self.norm(self.fc1(x)))  # <- gelu eps
        x = torch.relu(self.bn(self.fc2(x)))  # <- momentum
        return self.fc3(x)


torch.manual_seed(0)
model = Net()
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.state_dict().items()})
opt = torch.optim.Adam(model.parameters(), lr=1e-2)  # <- rate
r = np.random.RandomState(0)
losses = []
for step in range(3):
    x = torch.tensor(r.randn(8, 16).astype(np.float32))
    y = torch.tensor(r.randint(0, 4, 8))
    loss = F.cross_entropy(model(x), y)  # <- sum
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- rate
    losses.append(loss.item())
model.eval()
losses.append(model(x).square().mean().item())  # <- momentum
print(losses)
