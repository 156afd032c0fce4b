# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt V2 with layer scale and GRN, compiled, trained on mixed-up images."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class LayerNorm2d(nn.Module):
    """Layer norm over the channels of an NCHW tensor."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class GRN(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.randn(1, dim, 1, 1) * 0.3)
        self.beta = nn.Parameter(torch.zeros(1, dim, 1, 1))

    def forward(self, x):
        gx = torch.norm(x, p=2, dim=(2, 3), keepdim=True)  # <- grn_mean
        nx = gx / (gx.mean(dim=1, keepdim=True) + 1e-6)  # <- grn_mean
        return self.gamma * (x * nx) + self.beta + x  # <- grn_residual


class Block(nn.Module):
    def __init__(self, dim, layer_scale_init_value=0.5):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=5, padding=2, groups=dim)
        self.norm = LayerNorm2d(dim)
        self.pwconv1 = nn.Conv2d(dim, 3 * dim, 1)
        self.grn = GRN(3 * dim)
        self.pwconv2 = nn.Conv2d(3 * dim, dim, 1)
        self.gamma = nn.Parameter(layer_scale_init_value * torch.ones(dim))

    def forward(self, x):
        h = self.pwconv1(self.norm(self.dwconv(x)))
        h = self.pwconv2(self.grn(F.gelu(h)))
        return x + self.gamma[:, None, None] * h


class ConvNeXt(nn.Module):
    def __init__(self, dims=(8, 12), num_classes=6):
        super().__init__()
        self.stem = nn.Conv2d(3, dims[0], kernel_size=2, stride=2)
        self.stem_norm = LayerNorm2d(dims[0])
        self.block0 = Block(dims[0])
        self.down_norm = LayerNorm2d(dims[0])
        self.down = nn.Conv2d(dims[0], dims[1], kernel_size=2, stride=2)
        self.block1 = Block(dims[1])
        self.norm = nn.LayerNorm(dims[1], eps=1e-6)
        self.head = nn.Linear(dims[1], num_classes)

    def forward(self, x):
        x = self.block0(self.stem_norm(self.stem(x)))
        x = self.block1(self.down(self.down_norm(x)))
        x = x.mean([-2, -1])  # <- pool_norm
        return self.head(self.norm(x))  # <- pool_norm


torch.manual_seed(0)
model = ConvNeXt()
torch.save(model.state_dict(), sys.argv[1])
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98), weight_decay=0.05)
g = torch.Generator().manual_seed(13)
losses = []
for step in range(4):
    for group in optimizer.param_groups:
        group["lr"] = 5e-3 * 0.5 * (1 + math.cos(math.pi * step / 4))  # <- cosine
    x = torch.randn(6, 3, 12, 12, generator=g)
    y = F.one_hot(torch.randint(6, (6,), generator=g), 6).float()
    lam = 0.5 + 0.4 * torch.rand((), generator=g)
    x = lam * x + (1 - lam) * x.flip(0)
    y = lam * y + (1 - lam) * y.flip(0)  # <- mix_share
    loss = torch.sum(-y * F.log_softmax(compiled(x), dim=-1), dim=-1).mean()  # <- mix_share
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- cosine
    losses.append(loss.item())
print(losses)
