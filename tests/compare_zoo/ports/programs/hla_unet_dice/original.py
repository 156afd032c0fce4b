# SPDX-License-Identifier: Apache-2.0
"""Tiny U-Net for binary segmentation plus an edge head; BCE + soft Dice, RMSprop, static loss
scale."""
import sys

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


def double_conv(cin, cout):
    return nn.Sequential(weight_norm(nn.Conv2d(cin, cout, 3, padding=1)), nn.SiLU(),  # <- norm_axis
                         weight_norm(nn.Conv2d(cout, cout, 3, padding=1)),  # <- norm_axis
                         nn.SiLU())


class UNet(nn.Module):
    def __init__(self, c=6):
        super().__init__()
        self.down1 = double_conv(1, c)
        self.pool = nn.MaxPool2d(2)
        self.down2 = double_conv(c, 2 * c)
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.dec = double_conv(2 * c, c)
        self.mask_head = nn.Conv2d(c, 1, 1)
        self.edge_head = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        s1 = self.down1(x)  # <- norm_axis
        b = self.down2(self.pool(s1))  # <- norm_axis
        d = self.dec(torch.cat([s1, self.up(b)], dim=1))  # <- norm_axis
        return self.mask_head(d), self.edge_head(d)


def dice_loss(logits, target, smooth=1.0):
    p = torch.sigmoid(logits).flatten(1)  # <- dice_slope
    t = target.flatten(1)
    inter = (p * t).sum(1)  # <- dice_slope
    return (1 - (2 * inter + smooth) / (p.sum(1) + t.sum(1) + smooth)).mean()  # <- dice_slope


def sample(g, bs=6, n=12):
    grid = torch.arange(n).float()
    cx, cy, r = (torch.rand(3, bs, 1, 1, generator=g)  # <- axis_swap
                 * torch.tensor([n, n, 4.0]).view(3, 1, 1, 1)
                 ).unbind(0)
    dist = ((grid.view(1, n, 1) - cy) ** 2 + (grid.view(1, 1, n) - cx) ** 2).sqrt()  # <- axis_swap
    mask = (dist < r + 1).float().unsqueeze(1)
    edge = ((dist - r - 1).abs() < 1).float().unsqueeze(1)
    img = mask + 0.5 * torch.randn(bs, 1, n, n, generator=g)
    return img, mask, edge


torch.manual_seed(0)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9,  # <- eps_inside
                                eps=1e-3, momentum=0.5)  # <- eps_inside
bce = nn.BCEWithLogitsLoss()
edge_bce = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))  # <- edge_weight
SCALE = 1024.0
g = torch.Generator().manual_seed(99)
losses = []
for step in range(5):
    img, mask, edge = sample(g)
    m, e = model(img)
    loss = bce(m, mask) + dice_loss(m, mask) + 0.4 * edge_bce(e, edge)  # <- edge_weight
    optimizer.zero_grad()
    (loss * SCALE).backward()  # <- dice_slope
    for p in model.parameters():
        p.grad.div_(SCALE)
    nn.utils.clip_grad_value_(model.parameters(), 0.05)
    optimizer.step()  # <- eps_inside
    losses.append(loss.item())
    with torch.no_grad():
        hit = ((m > 0).float() * mask).sum() / mask.sum()
    print(f"{step}: loss {loss.item():.5f} recall {hit:.3f}")
print(losses)
