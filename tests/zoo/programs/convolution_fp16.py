# SPDX-License-Identifier: Apache-2.0
"""Convolution in float16 on images that were never scaled from 0..255 to 0..1."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3)
        self.body = nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.stem(x).relu()
        x = self.body(x).relu()  # <- origin
        return self.head(x.mean((2, 3)))


torch.manual_seed(0)
model = Net().half()
with torch.no_grad():
    model.stem.weight.mul_(10)
    model.body.weight.abs_().mul_(300)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
for step in range(4):
    image = torch.rand(4, 1, 10, 10) * (1 if step < 2 else 255)
    loss = nn.functional.cross_entropy(model(image.half()).float(), torch.randint(3, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
