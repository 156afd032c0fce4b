# SPDX-License-Identifier: Apache-2.0
"""Image restoration with gamma correction: the network's output dips below zero."""

import torch
from torch import nn


class Restore(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.LeakyReLU(), nn.Conv2d(8, 3, 3, padding=1)
        )

    def forward(self, image):
        linear = image + self.conv(image)
        return linear ** (1 / 2.2)  # <- origin


torch.manual_seed(0)
model = Restore()
with torch.no_grad():
    model.conv[2].weight.mul_(0.1)
    model.conv[2].bias.fill_(0.3)
optimizer = torch.optim.SGD(model.parameters(), lr=1.5)
for step in range(5):
    image = torch.rand(2, 3, 12, 12) * 0.5 + 0.2
    loss = (model(image) - image * 0.2).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
