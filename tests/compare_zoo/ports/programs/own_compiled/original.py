# SPDX-License-Identifier: Apache-2.0
"""A ConvNeXt-like classifier in NCHW with mixup, stochastic depth, Lion and an average of the
weights; the last number is the loss of the averaged weights.
"""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn

WIDTHS, CLASSES, BATCH, SIZE, DROP = (8, 12), 5, 6, 12, 0.3


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, dim, drop):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 5, padding=2, groups=dim)
        self.norm = LayerNorm2d(dim, eps=1e-6)
        self.pwconv1 = nn.Conv2d(dim, 4 * dim, 1)
        self.pwconv2 = nn.Conv2d(4 * dim, dim, 1)
        self.gamma = nn.Parameter(0.2 * torch.ones(dim, 1, 1))
        self.drop = drop

    def forward(self, x, draws):
        y = self.pwconv2(F.gelu(self.pwconv1(self.norm(self.dwconv(x)))))  # <- turned
        y = self.gamma * y
        if self.training and self.drop:
            keep = (draws >= self.drop).float()
            y = y * keep.view(-1, 1, 1, 1) / (1 - self.drop)  # <- rescaled
        return x + y  # <- rescaled


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, WIDTHS[0], 2, 2), LayerNorm2d(WIDTHS[0], eps=1e-6))
        self.stage1 = nn.ModuleList([Block(WIDTHS[0], 0.0), Block(WIDTHS[0], DROP / 2)])
        self.down = nn.Sequential(
            LayerNorm2d(WIDTHS[0], eps=1e-6), nn.Conv2d(WIDTHS[0], WIDTHS[1], 2, 2)
        )
        self.stage2 = nn.ModuleList([Block(WIDTHS[1], DROP)])
        self.norm = nn.LayerNorm(WIDTHS[1], eps=1e-6)
        self.head = nn.Linear(WIDTHS[1], CLASSES)

    def forward(self, x, draws):
        x = self.stem(x)
        for n, block in enumerate(self.stage1):
            x = block(x, draws[n])
        x = self.down(x)
        for n, block in enumerate(self.stage2, len(self.stage1)):
            x = block(x, draws[n])
        return self.head(self.norm(x.mean((-2, -1))))


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                exp_avg = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = exp_avg * beta1 + p.grad * (1 - beta1)  # <- momenta
                p.add_(torch.tanh(update / 1e-2), alpha=-group["lr"])  # <- momenta
                exp_avg.mul_(beta2).add_(p.grad, alpha=1 - beta2)  # <- momenta


def batch(generator):
    images = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
    labels = torch.randint(CLASSES, (BATCH,), generator=generator)
    return images, labels, torch.rand(3, BATCH, generator=generator)


torch.manual_seed(101)
model = ConvNeXt()
torch.save(model.state_dict(), sys.argv[1])
optimizer = Lion(model.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)  # <- momenta
averaged = copy.deepcopy(model)
generator = torch.Generator().manual_seed(102)
losses = []
for _ in range(3):
    images, labels, draws = batch(generator)
    lam = torch.rand(1, generator=generator).item()
    mixed = lam * images + (1 - lam) * images.flip(0)  # <- mixed
    logits = model(mixed, draws)
    rest = (1 - lam) * F.cross_entropy(logits, labels.flip(0))  # <- mixed
    loss = lam * F.cross_entropy(logits, labels) + rest  # <- mixed
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- momenta
    for a, p in zip(averaged.parameters(), model.parameters(), strict=True):
        a.data.lerp_(p.data, 0.4)  # <- average
    losses.append(loss.item())
averaged.eval()
with torch.no_grad():
    images, labels, draws = batch(generator)
    losses.append(F.cross_entropy(averaged(images, draws), labels).item())  # <- average
