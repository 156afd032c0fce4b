# SPDX-License-Identifier: Apache-2.0
"""A Swin stage: attention in windows, shifted every other block (Liu et al., 2021)."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SIDE, WINDOW, WIDTH, HEADS, SHIFT = 8, 4, 16, 2, 2


def windows(x):
    n, h, w, c = x.shape
    x = x.view(n, h // WINDOW, WINDOW, w // WINDOW, WINDOW, c)  # <- windows
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW * WINDOW, c)  # <- windows


def whole(x):
    x = x.view(-1, SIDE // WINDOW, SIDE // WINDOW, WINDOW, WINDOW, WIDTH)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, SIDE, SIDE, WIDTH)


def relative():
    y, x = torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")
    place = torch.stack((y.flatten(), x.flatten()))
    apart = place[:, :, None] - place[:, None, :] + WINDOW - 1  # <- bias
    return apart[0] * (2 * WINDOW - 1) + apart[1]  # <- bias


def apart_mask():
    region = torch.zeros(1, SIDE, SIDE, 1)
    count = 0
    for rows in (slice(0, -WINDOW), slice(-WINDOW, -SHIFT), slice(-SHIFT, None)):
        for columns in (slice(0, -WINDOW), slice(-WINDOW, -SHIFT), slice(-SHIFT, None)):
            region[:, rows, columns] = count
            count += 1
    region = windows(region).squeeze(-1)
    return (region[:, None] != region[:, :, None]).float() * -100.0  # <- mask


class Block(nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.table = nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, HEADS) * 0.5)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.shift = shift
        self.register_buffer("index", relative())
        self.register_buffer("mask", apart_mask() if shift else None)

    def attend(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (c // HEADS) ** -0.5) @ k.transpose(-2, -1)  # <- scale
        bias = self.table[self.index.view(-1)].view(t, t, HEADS).permute(2, 0, 1)  # <- bias
        scores = scores + bias  # <- bias mask scale
        if self.mask is not None:
            count = len(self.mask)
            scores = scores.view(b // count, count, HEADS, t, t) + self.mask[:, None]  # <- mask
            scores = scores.view(b, HEADS, t, t)  # <- mask
        return self.proj(
            (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
        )  # <- mask bias scale

    def forward(self, x):
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-SHIFT, -SHIFT), (1, 2))  # <- direction
        y = whole(self.attend(windows(y)))  # <- windows
        if self.shift:
            y = torch.roll(y, (SHIFT, SHIFT), (1, 2))  # <- back
        x = x + y  # <- back
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


torch.manual_seed(18)
model = nn.Sequential(Block(False), Block(True))
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
rng = np.random.default_rng(22)
losses = []
for _ in range(2):
    x = torch.from_numpy(rng.standard_normal((2, SIDE, SIDE, WIDTH), dtype=np.float32))
    y = torch.from_numpy(rng.standard_normal((2, SIDE, SIDE, WIDTH), dtype=np.float32))
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
