# SPDX-License-Identifier: Apache-2.0
"""Segmenting noisy discs with a small U-Net, BCE plus Dice, averaged weights evaluated at last."""
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.set_num_threads(1)
torch.manual_seed(19)

SIZE, BATCH, WIDTH = 16, 6, 8


class ConvBlock(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1), nn.SiLU(),
        )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = ConvBlock(1, WIDTH)
        self.enc2 = ConvBlock(WIDTH, 2 * WIDTH)
        self.mid = ConvBlock(2 * WIDTH, 4 * WIDTH)
        self.up2 = nn.ConvTranspose2d(4 * WIDTH, 2 * WIDTH, 2, stride=2)
        self.dec2 = ConvBlock(4 * WIDTH, 2 * WIDTH)
        self.up1 = nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, stride=2, padding=1)
        self.dec1 = ConvBlock(2 * WIDTH, WIDTH)
        self.head = nn.Conv2d(WIDTH, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        m = self.mid(F.max_pool2d(e2, 2))
        d2 = self.dec2(torch.cat([e2, self.up2(m)], dim=1))
        d1 = self.dec1(torch.cat([e1, self.up1(d2)], dim=1))
        return self.head(d1)


class BCEDice(nn.Module):
    def forward(self, logits, mask):
        bce = F.binary_cross_entropy_with_logits(logits, mask, pos_weight=torch.tensor(2.0))
        p = torch.sigmoid(logits).flatten(1)
        m = mask.flatten(1)
        dice = (2 * (p * m).sum(1) + 1) / (p.sum(1) + m.sum(1) + 1)
        return bce + (1 - dice).mean()


def discs(rng):
    yy, xx = np.mgrid[:SIZE, :SIZE]
    cy, cx, r = (rng.uniform(a, b, size=(BATCH, 1, 1)) for a, b in ((4, 12), (4, 12), (2, 5)))
    mask = ((yy - cy) ** 2 + (xx - cx) ** 2 < r ** 2).astype(np.float32)
    image = mask + 0.5 * rng.randn(BATCH, SIZE, SIZE)
    return torch.tensor(image[:, None], dtype=torch.float32), torch.tensor(mask[:, None])


model = UNet()
np.savez(sys.argv[1], **{k: v.numpy() for k, v in model.state_dict().items()})
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-10, weight_decay=0.02)
criterion = BCEDice()
rng = np.random.RandomState(55)
losses = []
for step in range(4):
    image, mask = discs(rng)
    optimizer.zero_grad()
    loss = criterion(model(image), mask)
    loss.backward()
    optimizer.step()
    ema.update_parameters(model)
    losses.append(loss.item())

ema.eval()
with torch.no_grad():
    image, mask = discs(rng)
    final = criterion(ema(image), mask).item()
print(losses)
