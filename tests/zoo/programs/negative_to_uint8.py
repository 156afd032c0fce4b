# SPDX-License-Identifier: Apache-2.0
"""Augmented images are written back as bytes; noise makes some pixels negative."""

import torch
from torch import nn


def augment(image, noise):
    return (image + noise * torch.randn_like(image)).clamp(max=255)


torch.manual_seed(0)
model = nn.Conv2d(1, 2, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(3):
    image = 100 + 50 * torch.rand(2, 1, 8, 8)
    noisy = augment(image, 1.0 if step < 1 else 90.0)
    stored = noisy.to(torch.uint8)  # <- origin
    loss = model(stored.float() / 255).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
