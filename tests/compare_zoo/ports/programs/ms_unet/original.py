# SPDX-License-Identifier: Apache-2.0
"""A tiny UNet for masks: group norms, strided transposed convolution, skip connection, BCE loss, Adam with a step schedule."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class DoubleConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.norm = nn.GroupNorm(2, n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1)

    def forward(self, x):
        x = F.leaky_relu(self.norm(self.conv1(x)))  # <- slope
        return F.leaky_relu(self.conv2(x))  # <- slope


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = DoubleConv(3, 6)
        self.deep = DoubleConv(6, 8)
        self.up = nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1)  # <- up_bias
        self.leave = DoubleConv(12, 6)
        self.out = nn.Conv2d(6, 1, 1)

    def forward(self, x):
        skip = self.enter(x)
        x = self.deep(F.avg_pool2d(skip, 2))
        x = self.up(x)  # <- up_bias
        x = self.leave(torch.cat([skip, x], dim=1))  # <- concat
        return self.out(x)


torch.manual_seed(6)
model = UNet()
with torch.no_grad():
    for p in model.parameters():
        p.add_(0.1 * torch.randn(p.shape))
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)  # <- lr_step
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2], gamma=0.1)  # <- lr_step
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))  # <- pos_weight
random = np.random.RandomState(12)
losses = []
for _ in range(4):
    images = random.randn(4, 3, 12, 12).astype(np.float32)
    masks = (images.sum(1, keepdims=True) > 1.0).astype(np.float32)
    loss = criterion(model(torch.tensor(images)), torch.tensor(masks))  # <- pos_weight
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- lr_step
    scheduler.step()  # <- lr_step
    losses.append(loss.item())
print(losses)
