# SPDX-License-Identifier: Apache-2.0
"""Steps of a diffusion model: a small UNet with time embedding predicts the noise; the loss of an averaged copy too."""

import copy
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

STEPS, SIDE, BATCH, TIME = 50, 8, 4, 16


def time_embedding(t):
    frequencies = torch.exp(-np.log(1000.0) * torch.arange(TIME // 2) / (TIME // 2))
    angles = t[:, None].float() * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)  # <- sin_cos


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.temb = nn.Linear(TIME, outputs)
        self.norm = nn.GroupNorm(2, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x, temb):
        x = self.conv1(x) + self.temb(F.silu(temb))[:, :, None, None]  # <- sin_cos
        return self.conv2(F.silu(self.norm(x)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = ResBlock(2, 8)
        self.middle = ResBlock(8, 8)
        self.leave = ResBlock(16, 8)
        self.final = nn.Conv2d(8, 2, 1)

    def forward(self, x, t):
        temb = time_embedding(t)  # <- sin_cos
        skip = self.enter(x, temb)
        x = self.middle(F.max_pool2d(skip, 3, 2, 1), temb)  # <- pool_pads
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        return self.final(self.leave(torch.cat([x, skip], dim=1), temb))  # <- skip_order


torch.manual_seed(101)
model = UNet()
np.savez(sys.argv[1], **{name: p.detach().numpy() for name, p in model.named_parameters()})

average = copy.deepcopy(model)
alpha_bar = torch.cumprod(1 - torch.linspace(1e-3, 0.1, STEPS), dim=0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
random = np.random.RandomState(102)
losses = []
for _ in range(4):
    images = torch.from_numpy(random.randn(BATCH, 2, SIDE, SIDE).astype(np.float32))
    noise = torch.from_numpy(random.randn(BATCH, 2, SIDE, SIDE).astype(np.float32))
    t = torch.from_numpy(random.randint(0, STEPS, (BATCH,)))
    level = alpha_bar[t][:, None, None, None]
    noisy = level.sqrt() * images + (1 - level).sqrt() * noise  # <- noise_level
    loss = F.mse_loss(model(noisy, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters()):
            old.mul_(0.8).add_(new, alpha=0.2)  # <- average
        smooth = F.mse_loss(average(noisy, t), noise)  # <- average
    losses.append(loss.item() + smooth.item())
print(losses)
