# SPDX-License-Identifier: Apache-2.0
"""Organ segmentation: small U-Net with group norm, dice + focal loss, accumulation, weight EMA."""

import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 3


class ConvGN(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),  # <- group_layout
            nn.GroupNorm(2, cout, eps=1e-4),  # <- group_layout
            nn.LeakyReLU(0.1),
        )

    def forward(self, x):
        return super().forward(x)  # <- group_layout


class UNet(nn.Module):
    def __init__(self, w=4):
        super().__init__()
        self.enc1 = ConvGN(1, w)
        self.enc2 = ConvGN(w, 2 * w)
        self.up = nn.ConvTranspose2d(2 * w, w, kernel_size=2, stride=2)
        self.dec = ConvGN(2 * w, w)
        self.out = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.avg_pool2d(a, 2))
        u = self.up(b)
        d = self.dec(torch.cat([a, u], dim=1))  # <- skip_order
        return self.out(d)


def dice_loss(logits, mask, smooth=1.0):
    prob = logits.softmax(dim=1)
    onehot = F.one_hot(mask, CLASSES).permute(0, 3, 1, 2).to(prob.dtype)
    inter = (prob * onehot).sum(dim=(0, 2, 3))
    total = (prob + onehot).sum(dim=(0, 2, 3))
    dice = (2 * inter + smooth) / (total + smooth)
    return 1 - dice.mean()


def focal_loss(logits, mask, gamma=2.0):
    ce = F.cross_entropy(logits, mask, reduction="none")
    pt = torch.exp(-ce)
    return ((1 - pt) ** gamma * ce).mean()  # <- focal_detach


class Ema:
    def __init__(self, model, decay):
        self.shadow = copy.deepcopy(model)
        self.decay = decay
        self.count = 0

    @torch.no_grad()
    def update(self, model):
        self.count += 1
        d = min(self.decay, (1 + self.count) / (10 + self.count))  # <- ema_warmup
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(d).add_(p, alpha=1 - d)  # <- ema_warmup


def scans(n, batch=2, size=8):
    gen = torch.Generator().manual_seed(404)
    for _ in range(n):
        img = torch.randn(batch, 1, size, size, generator=gen)
        mask = torch.randint(0, CLASSES, (batch, size, size), generator=gen)
        yield img + 0.5 * mask[:, None], mask


def consistency(student, teacher):
    return F.mse_loss(student.softmax(1), teacher.softmax(1).detach())


torch.manual_seed(0)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])
ema = Ema(model, 0.95)
optimizer = torch.optim.AdamW(  # <- decoupled_decay
    model.parameters(), lr=0.02, weight_decay=0.1, eps=1e-3
)  # <- decoupled_decay
ACCUM = 2
losses = []
data = scans(5 * ACCUM)
for step in range(5):
    optimizer.zero_grad()
    total = 0.0
    for _ in range(ACCUM):
        img, mask = next(data)
        logits = model(img)
        with torch.no_grad():
            slow = ema.shadow(img)  # <- ema_warmup
        loss = dice_loss(logits, mask) + 0.5 * focal_loss(logits, mask)
        loss = loss + 2.0 * consistency(logits, slow)
        (loss / ACCUM).backward()
        total += loss.item() / ACCUM
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.4)
    optimizer.step()  # <- decoupled_decay
    ema.update(model)
    losses.append(total)
print(losses)
