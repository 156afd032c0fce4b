# SPDX-License-Identifier: Apache-2.0
"""A sparse convolutional autoencoder: PReLU, transposed convolution, bilinear upsampling; Adam."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BATCH, SIZE, WIDE, SPARSE = 6, 8, 6, 0.05


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(2, WIDE, 4, stride=2, padding=1)
        self.act1 = nn.PReLU(WIDE)
        self.down2 = nn.Conv2d(WIDE, WIDE, 4, stride=2, padding=1)
        self.up1 = nn.ConvTranspose2d(
            WIDE, WIDE, 3, stride=2, padding=1, output_padding=1
        )  # <- cropped
        self.act2 = nn.PReLU(WIDE)  # <- alpha
        self.up2 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)  # <- nearest
        self.last = nn.Conv2d(WIDE, 2, 3, padding=1)

    def forward(self, x):
        h = self.act1(self.down1(x))
        code = self.down2(h)
        h = self.up1(code)  # <- cropped channels
        h = self.act2(h)  # <- alpha
        h = self.up2(h)  # <- nearest
        return self.last(h), code


torch.manual_seed(29)
model = AutoEncoder()
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
rng = np.random.RandomState(71)
losses = []
for _ in range(3):
    grid = np.linspace(0, 3, SIZE)
    phase = rng.uniform(0, 3, (BATCH, 2, 1, 1))
    images = np.sin(grid[:, None] + phase) * np.cos(2 * grid[None, :] - phase)
    x = torch.from_numpy(images.astype("float32"))
    y, code = model(x)
    loss = F.mse_loss(y, x)
    loss = loss + SPARSE * code.abs().sum() / BATCH  # <- sparsity
    optimizer.zero_grad()
    loss.backward()  # <- sparsity
    optimizer.step()
    losses.append(loss.item())
print(losses)
