# SPDX-License-Identifier: Apache-2.0
"""GroupNorm with eps=0 on a batch that holds one blank image."""

import torch
from torch import nn


class UNetStem(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, 8, eps=0.0)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        return self.out(self.norm(self.conv(x)).relu())  # <- origin


torch.manual_seed(0)
model = UNetStem()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    image = torch.rand(3, 1, 8, 8)
    if step == 2:
        image[1] = 0.0
    loss = (model(image) - image).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
