# SPDX-License-Identifier: Apache-2.0
"""Multi-label land-cover tagging of multispectral tiles with a vision transformer that was trained
on 4x4 patches and is evaluated on 6x5 (position embeddings interpolated)."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

BANDS, PATCH, DIM, HEADS, DEPTH, TAGS, GRID = 4, 6, 36, 3, 3, 7, 4


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(BANDS, DIM, PATCH, stride=PATCH)

    def forward(self, x):
        return self.proj(x)  # <- patches


class LayerScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(0.2 + 0.6 * torch.rand(DIM))

    def forward(self, x):
        return x * self.gamma  # <- layerscale


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM, eps=1e-6), nn.LayerNorm(DIM, eps=1e-6)
        self.attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.ls1, self.ls2 = LayerScale(), LayerScale()
        self.mlp = nn.Sequential(nn.Linear(DIM, 72), nn.GELU(), nn.Linear(72, DIM))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.ls1(self.attn(y, y, y, need_weights=False)[0])  # <- layerscale
        return x + self.ls2(self.mlp(self.norm2(x)))  # <- prenorm


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.randn(1, 1, DIM))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + GRID * GRID, DIM))
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.head = nn.Linear(2 * DIM, TAGS)

    def positions(self, rows, cols):
        first, rest = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        grid = rest.reshape(1, GRID, GRID, DIM).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(rows, cols), mode="bicubic")  # <- cubic
        return torch.cat([first, grid.flatten(2).transpose(1, 2)], dim=1)

    def forward(self, x):
        x = self.patch_embed(x)
        rows, cols = x.shape[-2:]
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        x = x + self.positions(rows, cols)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        x = torch.cat([x[:, 0], x[:, 1:].mean(1)], dim=-1)  # <- pooling
        return self.head(x)


torch.manual_seed(0)
model = VisionTransformer().eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        if name.endswith("weight") and p.dim() > 1:
            p.normal_(0, 1.4 / p[0].numel() ** 0.5)
        elif "norm" in name or name.endswith("bias"):
            p.add_(0.2 * torch.randn_like(p))
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(101)
losses = []
with torch.inference_mode():
    for _ in range(4):
        tiles = torch.rand(5, BANDS, 6 * PATCH, 5 * PATCH, generator=gen)
        tiles = F.avg_pool2d(tiles, 3, stride=1, padding=1) * 4 - 2
        tags = (torch.rand(5, TAGS, generator=gen) < 0.3).float()
        logits = model(tiles)
        losses.append(F.binary_cross_entropy_with_logits(logits, tags).item())
print(losses)
