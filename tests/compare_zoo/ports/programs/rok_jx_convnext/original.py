# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt-style image classifier, AdamW with linear warm-up and cosine decay."""
import math
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(3)


class LayerNorm2d(nn.Module):
    """LayerNorm over the channels of an NCHW tensor."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        u = x.mean(1, keepdim=True)  # <- norm_axis
        s = (x - u).pow(2).mean(1, keepdim=True)  # <- norm_axis
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, dim, layer_scale=0.5):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 5, padding=2, groups=dim)  # <- kernel_axes
        self.norm = nn.LayerNorm(dim, eps=1e-6)  # <- norm_axis
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(layer_scale * torch.ones(dim))

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)  # <- kernel_axes
        y = self.norm(y)  # <- norm_axis
        y = self.gamma * self.pwconv2(self.act(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, dims=(8, 16), num_classes=7):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dims[0], 2, stride=2), LayerNorm2d(dims[0]))  # <- kernel_axes
        self.stage1 = Block(dims[0])
        self.down = nn.Sequential(
            LayerNorm2d(dims[0]),
            nn.Conv2d(dims[0], dims[1], 3, stride=2, padding=1))  # <- same_padding
        self.stage2 = Block(dims[1])
        self.head = nn.Linear(dims[1] * 4 * 4, num_classes)  # <- flatten_order

    def forward(self, x):
        x = self.stage1(self.stem(x))  # <- kernel_axes
        x = self.down(x)  # <- same_padding
        x = self.stage2(x)
        x = torch.flatten(x, 1)  # <- flatten_order
        return self.head(x)  # <- flatten_order


model = ConvNeXt()
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.state_dict().items()})

WARMUP, TOTAL, PEAK = 2, 8, 1e-2


def lr_lambda(step):
    if step < WARMUP:
        return (step + 1) / (WARMUP + 1)  # <- warmup_from_zero
    progress = (step - WARMUP) / (TOTAL - WARMUP)
    return 0.5 * (1 + math.cos(math.pi * progress))


optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)  # <- warmup_from_zero

rng = np.random.RandomState(12)
losses = []
for step in range(4):
    x = torch.from_numpy(rng.normal(size=(8, 3, 16, 16)).astype(np.float32))
    y = torch.from_numpy(rng.randint(0, 7, size=8))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- warmup_from_zero
    scheduler.step()  # <- warmup_from_zero
    losses.append(loss.item())
print(losses)
