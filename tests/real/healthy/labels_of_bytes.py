# SPDX-License-Identifier: Apache-2.0
"""Masks of uint8 labels, 255 ignored, compared with numbers that fit."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(3, 5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    labels = torch.randint(0, 6, (2, 8, 8), dtype=torch.uint8)
    labels[labels == 5] = 255
    valid = labels != 255
    loss = nn.functional.cross_entropy(
        model(torch.randn(2, 3, 8, 8)), labels.long(), ignore_index=255
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), valid.float().mean().item(), (labels <= 2).sum().item())
