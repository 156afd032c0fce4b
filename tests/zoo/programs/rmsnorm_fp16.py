# SPDX-License-Identifier: Apache-2.0
"""RMSNorm that squares in float16: activations above 256 overflow."""

import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)  # <- origin
        return x * torch.rsqrt(variance + 1e-5) * self.weight


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = RMSNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


torch.manual_seed(0)
model = nn.Sequential(*(Block(32) for _ in range(3))).half()
with torch.no_grad():
    model[1].down.weight.mul_(2000)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(3):
    x = torch.randn(8, 32).half()
    loss = model(x).float().abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
