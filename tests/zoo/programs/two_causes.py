# SPDX-License-Identifier: Apache-2.0
"""Two faults in one program: an auxiliary exp that is thrown away, later a log that is not."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.rate = nn.Linear(4, 1)

    def forward(self, x):
        h = self.body(x)
        with torch.no_grad():
            energy = torch.exp(h.abs().sum(1) * 100)  # <- second
            keep = (energy > 1).float()
        rate = self.rate(h)
        return torch.log(rate.clamp(min=0)) * keep.unsqueeze(1)  # <- origin


torch.manual_seed(0)
net = Net()
with torch.no_grad():
    net.rate.weight.mul_(0.05)
    net.rate.bias.fill_(1.0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(8, 4)
    if step == 2:
        with torch.no_grad():
            net.rate.bias.fill_(-1.0)
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
