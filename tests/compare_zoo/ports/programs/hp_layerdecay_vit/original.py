# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning a ViT: layer-wise learning rate decay, and blocks unfrozen from the top as training goes on."""
import re
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.ls1 = nn.Parameter(torch.full((dim,), 0.3))
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.ls2 = nn.Parameter(torch.full((dim,), 0.3))

    def forward(self, x):
        x = x + self.ls1 * self.attn(self.norm1(x))
        return x + self.ls2 * self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, dim=24, depth=3, heads=3, classes=5):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 4, 4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, 17, dim) * 0.2)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def layer_of(name, depth):
    if name.startswith(("norm", "head")):
        return depth + 1
    found = re.match(r"blocks\.(\d+)\.", name)
    return int(found.group(1)) + 1 if found else 0


def param_groups(model, lr, decay=0.6, weight_decay=0.05, depth=3):
    groups = {}
    for name, p in model.named_parameters():
        layer = layer_of(name, depth)
        wd = 0.0 if p.ndim == 1 or name in ("cls_token", "pos_embed") else weight_decay
        group = groups.setdefault((layer, wd), dict(params=[], lr=lr * decay ** (depth + 1 - layer), weight_decay=wd))
        group["params"].append(p)
    return list(groups.values())


def set_trainable(model, lowest):
    for name, p in model.named_parameters():
        p.requires_grad_(layer_of(name, 3) >= lowest)


torch.manual_seed(91)
model = VisionTransformer()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.AdamW(param_groups(model, lr=3e-3))
gen = torch.Generator().manual_seed(92)
losses = []
for step in range(6):
    if step in (0, 2, 4):
        set_trainable(model, {0: 4, 2: 2, 4: 0}[step])
    x, y = torch.randn(8, 3, 16, 16, generator=gen), torch.randint(0, 5, (8,), generator=gen)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
