# SPDX-License-Identifier: Apache-2.0
"""Swin Transformer V2 (Liu et al., 2022): windows and shifted windows of cosine attention with a
log-spaced continuous position bias, norms after the branches, merging of patches.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIZE, PATCH, DIM, HEADS, WINDOW, CLASSES, BATCH = 16, 2, 12, 3, 4, 5, 4


def window_partition(x):
    b, h, w, c = x.shape
    x = x.view(b, h // WINDOW, WINDOW, w // WINDOW, WINDOW, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW * WINDOW, c)


def window_reverse(windows, h, w):
    x = windows.view(-1, h // WINDOW, w // WINDOW, WINDOW, WINDOW, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, h, w, windows.shape[-1])


class WindowAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.log(torch.tensor([[[2.0]], [[5.0]], [[150.0]]])))
        self.cpb_mlp = nn.Sequential(
            nn.Linear(2, 16), nn.ReLU(inplace=True), nn.Linear(16, HEADS, bias=False)
        )
        span = torch.arange(-(WINDOW - 1), WINDOW, dtype=torch.float32)
        table = torch.stack(torch.meshgrid(span, span, indexing="ij"), dim=-1)  # <- order
        table = table / (WINDOW - 1) * 8
        table = torch.sign(table) * torch.log2(torch.abs(table) + 1.0) / np.log2(8)  # <- log
        self.register_buffer("coords_table", table, persistent=False)
        place = torch.arange(WINDOW)
        coords = torch.stack(torch.meshgrid(place, place, indexing="ij")).flatten(1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + WINDOW - 1
        index = relative[..., 0] * (2 * WINDOW - 1) + relative[..., 1]  # <- order
        self.register_buffer("index", index, persistent=False)
        self.qkv = nn.Linear(dim, dim * 3, bias=False)
        self.q_bias = nn.Parameter(torch.randn(dim) * 0.1)
        self.v_bias = nn.Parameter(torch.randn(dim) * 0.1)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask):
        n_windows, n, c = x.shape
        qkv_bias = torch.cat((self.q_bias, torch.zeros_like(self.v_bias), self.v_bias))
        qkv = F.linear(x, self.qkv.weight, qkv_bias)
        q, k, v = qkv.reshape(n_windows, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)  # <- cosine
        logit_scale = torch.clamp(self.logit_scale, max=np.log(1.0 / 0.01)).exp()  # <- hottest
        attn = attn * logit_scale
        bias_table = self.cpb_mlp(self.coords_table).view(-1, HEADS)
        bias = bias_table[self.index.view(-1)].view(n, n, HEADS).permute(2, 0, 1)  # <- order
        bias = 16 * torch.sigmoid(bias)  # <- bounded
        attn = attn + bias.unsqueeze(0)  # <- bounded
        if mask is not None:
            attn = attn.view(-1, len(mask), HEADS, n, n) + mask[None, :, None]
            attn = attn.view(-1, HEADS, n, n)
        x = (attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(n_windows, n, c)
        return self.proj(x)


class SwinBlock(nn.Module):
    def __init__(self, dim, side, shift):
        super().__init__()
        self.side, self.shift = side, shift
        self.attn = WindowAttention(dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.register_buffer("mask", self.shifted_mask() if shift else None, persistent=False)

    def shifted_mask(self):
        region = torch.zeros(1, self.side, self.side, 1)
        slices = (slice(0, -WINDOW), slice(-WINDOW, -self.shift), slice(-self.shift, None))
        for n, (rows, columns) in enumerate((r, c) for r in slices for c in slices):
            region[:, rows, columns] = n
        windows = window_partition(region).squeeze(-1)
        return (windows.unsqueeze(1) != windows.unsqueeze(2)) * -100.0

    def forward(self, x):
        b, n, c = x.shape
        shortcut = x
        x = x.view(b, self.side, self.side, c)
        if self.shift:
            x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))  # <- rolled
        windows = self.attn(window_partition(x), self.mask)
        x = window_reverse(windows, self.side, self.side)
        if self.shift:
            x = torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))
        x = shortcut + self.norm1(x.reshape(b, n, c))
        return x + self.norm2(self.mlp(x))  # <- post


class PatchMerging(nn.Module):
    def __init__(self, dim, side):
        super().__init__()
        self.side = side
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = nn.LayerNorm(2 * dim)

    def forward(self, x):
        b, _, c = x.shape
        x = x.view(b, self.side, self.side, c)
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        x = torch.cat(parts, -1).view(b, -1, 4 * c)  # <- merged
        return self.norm(self.reduction(x))


class SwinV2(nn.Module):
    def __init__(self):
        super().__init__()
        side = SIZE // PATCH
        self.patch_embed = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.patch_norm = nn.LayerNorm(DIM)
        self.blocks = nn.Sequential(
            SwinBlock(DIM, side, 0), SwinBlock(DIM, side, WINDOW // 2), PatchMerging(DIM, side)
        )
        self.last = SwinBlock(2 * DIM, side // 2, 0)
        self.norm = nn.LayerNorm(2 * DIM)
        self.head = nn.Linear(2 * DIM, CLASSES)

    def forward(self, x):
        x = self.patch_norm(self.patch_embed(x).flatten(2).transpose(1, 2))
        x = self.norm(self.last(self.blocks(x)))
        return self.head(x.mean(dim=1))


torch.manual_seed(107)
model = SwinV2()
torch.save(model.state_dict(), sys.argv[1])
decay = [p for p in model.parameters() if p.dim() == 2 or p.dim() == 4]
no_decay = [p for p in model.parameters() if p.dim() not in (2, 4)]
groups = [
    {"params": decay, "weight_decay": 0.05},
    {"params": no_decay, "weight_decay": 0.0},
]  # <- decayed
optimizer = torch.optim.SGD(groups, lr=0.001, momentum=0.9)
rng = np.random.default_rng(109)
losses = []
for _ in range(3):
    images = torch.from_numpy(rng.normal(size=(BATCH, 3, SIZE, SIZE)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, CLASSES, BATCH))
    loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decayed
    losses.append(loss.item())
