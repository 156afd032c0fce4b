# SPDX-License-Identifier: Apache-2.0
"""An eager vision transformer: patches by a convolution, fused qkv, layer scale, smoothed labels,
gradients gathered over two halves of a batch.
"""

import sys

import torch
from torch import nn

IMAGE, PATCH, DIM, HEADS, DEPTH, CLASSES, MICRO = 12, 4, 24, 3, 2, 6, 3
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, n, _ = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q * (DIM // HEADS) ** -0.5) @ k.transpose(-2, -1)
        return self.proj((attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, n, DIM))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM, eps=1e-6)
        self.attn = Attention()
        self.ls1 = nn.Parameter(0.5 * torch.ones(DIM))
        self.norm2 = nn.LayerNorm(DIM, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
        self.ls2 = nn.Parameter(0.3 * torch.ones(DIM))

    def forward(self, x):
        x = x + self.ls1 * self.attn(self.norm1(x))  # <- layer_scale
        return x + self.ls2 * self.mlp(self.norm2(x))  # <- layer_scale


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, DIM, PATCH, stride=PATCH)  # <- patches
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, DIM))
        self.pos_embed = nn.Parameter(0.1 * torch.randn(1, (IMAGE // PATCH) ** 2 + 1, DIM))
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2)  # <- patches
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        x = self.norm(self.blocks(x + self.pos_embed))
        return self.head(x[:, 0])


def load(generator):
    raw = torch.randint(256, (2 * MICRO, IMAGE, IMAGE, 3), generator=generator).float()
    images = raw.permute(0, 3, 1, 2) / 255  # <- colours
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    labels = torch.randint(CLASSES, (2 * MICRO,), generator=generator)
    return (images - mean) / std, labels  # <- colours


torch.manual_seed(151)
model = ViT()
with torch.no_grad():
    for block in model.blocks:
        block.ls1.add_(0.2 * torch.rand(DIM))
        block.ls2.add_(0.2 * torch.rand(DIM))
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-4, weight_decay=0.05)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
generator = torch.Generator().manual_seed(152)
losses = []
for _ in range(4):
    images, labels = load(generator)
    optimizer.zero_grad()
    total = 0.0
    for part, target in zip(images.split(MICRO), labels.split(MICRO)):
        loss = criterion(model(part), target) / 2  # <- smoothing gathered
        loss.backward()  # <- gathered
        total += loss.item()
    optimizer.step()  # <- gathered
    schedule.step()
    losses.append(total)
