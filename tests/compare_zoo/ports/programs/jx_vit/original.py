# SPDX-License-Identifier: Apache-2.0
"""A small ViT on images, label smoothing, a higher rate for the head than for the backbone."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIDE, PATCH, WIDTH, HEADS, LAYERS, CLASSES = 12, 4, 24, 3, 2, 5
COUNT = (SIDE // PATCH) ** 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.fc1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.fc2 = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        batch, size, _ = x.shape
        mixed = self.qkv(self.norm1(x)).reshape(
            batch, size, 3, HEADS, WIDTH // HEADS
        )  # <- qkv_bias
        q, k, v = mixed.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, size, WIDTH))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, PATCH, PATCH)  # <- patch_order
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(0.5 * torch.randn(1, COUNT + 1, WIDTH))
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2)  # <- patch_order
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        x = x + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))  # <- cls_place


torch.manual_seed(91)
model = ViT()
with torch.no_grad():
    for block in model.blocks:
        block.qkv.weight.mul_(2.0)
        block.qkv.bias.normal_(std=0.5)
np.savez(sys.argv[1], **{name: p.detach().numpy() for name, p in model.named_parameters()})

backbone = [p for name, p in model.named_parameters() if not name.startswith("head.")]
groups = [
    {"params": backbone, "lr": 2e-3},
    {"params": model.head.parameters(), "lr": 2e-2},
]  # <- head_rate
optimizer = torch.optim.Adam(groups, betas=(0.9, 0.98))  # <- head_rate
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
random = np.random.RandomState(92)
losses = []
for _ in range(4):
    images = torch.from_numpy(random.randn(5, 3, SIDE, SIDE).astype(np.float32))
    labels = torch.from_numpy(random.randint(0, CLASSES, (5,)))
    loss = criterion(model(images), labels)  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- head_rate
    losses.append(loss.item())
print(losses)
