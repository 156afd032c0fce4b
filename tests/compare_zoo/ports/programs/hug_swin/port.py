# SPDX-License-Identifier: Apache-2.0
"""The Swin classifier written out: windows are index tables, targets are distributions."""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

W, CLASSES, SMOOTH = 4, 5, 0.1
NAMES = {"norm1": "layernorm_before", "norm2": "layernorm_after", "out": "attention.o_proj"}
NAMES |= {"fc1": "mlp.fc1", "fc2": "mlp.fc2"}


def windows_of(side, shift):
    """Where the tokens of each window stand in the image, and which pairs may see each other."""
    grid = torch.arange(side * side).view(side, side)
    grid = grid.roll((-shift, -shift), (0, 1))  # <- last_shift
    table = grid.view(side // W, W, side // W, W).transpose(1, 2).reshape(-1, W * W)
    around = 2 * (table // side < shift) + 1 * (table % side < shift)
    return table, around[:, :, None] != around[:, None, :]


def pair_table():
    at = torch.cartesian_prod(torch.arange(W), torch.arange(W))
    away = at[:, None] - at[None, :] + W - 1  # <- turned
    return away[..., 0] * (2 * W - 1) + away[..., 1]  # <- turned


class Block(nn.Module):
    def __init__(self, dim, heads, side, shift):
        super().__init__()
        self.heads, self.pairs = heads, pair_table()
        self.table, self.apart = windows_of(side, shift)  # <- last_shift
        self.home = self.table.flatten().argsort()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.bias = nn.Parameter(torch.empty(heads, (2 * W - 1) ** 2))
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def attend(self, x):
        x = self.qkv(x)[:, self.table]  # <- last_shift
        q, k, v = x.unflatten(-1, (3, self.heads, -1)).movedim(-2, 2).unbind(-2)
        scores = q @ k.mT / math.sqrt(q.shape[-1]) + self.bias[:, self.pairs]  # <- turned
        seen = scores.masked_fill(self.apart[None, :, None], -math.inf)  # <- unmasked
        mixed = (seen.softmax(-1) @ v).transpose(2, 3)  # <- unmasked
        return self.out(mixed.flatten(3).flatten(1, 2)[:, self.home])

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Merge(nn.Module):
    def __init__(self, dim, side):
        super().__init__()
        self.side = side
        self.norm, self.reduce = nn.LayerNorm(4 * dim), nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        x = x.unflatten(1, (self.side // 2, 2, self.side // 2, 2))
        x = x.permute(0, 1, 3, 4, 2, 5)  # <- merge
        return self.reduce(self.norm(x.flatten(3).flatten(1, 2)))  # <- merge


def build():
    parts = {"patch": nn.Linear(12, 16), "patch_norm": nn.LayerNorm(16)}
    for stage, (dim, heads, side) in enumerate(((16, 2, 8), (32, 4, 4))):
        for n in range(2):
            shift = W // 2 if n % 2 and side > W else 0  # <- last_shift
            parts[f"block{stage}{n}"] = Block(dim, heads, side, shift)  # <- last_shift
        if stage == 0:
            parts["merge"] = Merge(dim, side)
    return nn.ModuleDict(parts | {"norm": nn.LayerNorm(32), "head": nn.Linear(32, CLASSES)})


def fill(model, theirs):
    def put(module, *names):
        for kind, target in module.named_parameters(recurse=False):
            if kind in ("weight", "bias"):
                whole = torch.cat([theirs[f"{name}.{kind}"] for name in names])
                target.copy_(whole.view_as(target))

    put(model["patch"], "swin.embeddings.patch_embeddings.projection")
    put(model["patch_norm"], "swin.embeddings.norm")
    for name, block in model.items():
        if not name.startswith("block"):
            continue
        here = f"swin.encoder.layers.{name[5]}.blocks.{name[6]}"
        for ours, other in NAMES.items():
            put(getattr(block, ours), f"{here}.{other}")
        put(block.qkv, *(f"{here}.attention.{c}_proj" for c in "qkv"))
        bias = f"{here}.attention.relative_position_bias.relative_position_bias_table"
        block.bias.copy_(theirs[bias].t())
    put(model["merge"].norm, "swin.encoder.layers.0.downsample.norm")
    put(model["merge"].reduce, "swin.encoder.layers.0.downsample.reduction")
    put(model["norm"], "swin.layernorm")
    put(model["head"], "classifier")


model = build()
with torch.no_grad():
    fill(model, torch.load(sys.argv[1]))
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, eps=1e-4, weight_decay=0.05)
rng = torch.Generator().manual_seed(351)
losses = []
for _ in range(4):
    x = torch.randn(3, 3, 16, 16, generator=rng)
    labels = torch.randint(CLASSES, (3,), generator=rng)
    x = F.unfold(x, 2, stride=2).mT
    for name, part in model.items():
        x = part(x.mean(1) if name == "head" else x)
    wanted = F.one_hot(labels, CLASSES) * (1 - SMOOTH) + SMOOTH / CLASSES  # <- smoothing
    loss = -(wanted * x.log_softmax(-1)).sum(-1).mean()  # <- smoothing
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
