# SPDX-License-Identifier: Apache-2.0
"""A plain ViT with a class token, trained eagerly on mixed images with soft labels."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

IMG, PATCH, DIM, DEPTH, HEADS, CLASSES = 16, 4, 32, 2, 4, 8


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(3, DIM, kernel_size=PATCH, stride=PATCH)  # <- patch_axes

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)  # <- patch_axes


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_heads, self.scale = HEADS, (DIM // HEADS) ** -0.5
        self.qkv = nn.Linear(DIM, DIM * 3)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        x = attn.softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class LayerScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((DIM,), 0.5))

    def forward(self, x):
        return x * self.gamma  # <- branch_scale


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn, self.ls1 = nn.LayerNorm(DIM, eps=1e-6), Attention(), LayerScale()
        self.norm2, self.ls2 = nn.LayerNorm(DIM, eps=1e-6), LayerScale()
        self.mlp = nn.Sequential(nn.Linear(DIM, DIM * 2), nn.GELU(), nn.Linear(DIM * 2, DIM))

    def forward(self, x):
        x = x + self.ls1(self.attn(self.norm1(x)))  # <- branch_scale
        return x + self.ls2(self.mlp(self.norm2(x)))  # <- branch_scale


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, DIM))
        self.pos_embed = nn.Parameter(torch.randn(1, (IMG // PATCH) ** 2 + 1, DIM) * 0.3)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.head = nn.Linear(DIM, CLASSES)
        nn.init.normal_(self.cls_token, std=0.1)

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)  # <- class_place
        x = self.norm(self.blocks(x + self.pos_embed))  # <- class_place
        return self.head(x[:, 0])  # <- class_place


class SoftTargetCrossEntropy(nn.Module):
    def forward(self, x, target):
        loss = torch.sum(-target * F.log_softmax(x, dim=-1), dim=-1)
        return loss.mean()


def one_hot(y, smoothing=0.1):
    off = smoothing / CLASSES
    out = torch.full((y.size(0), CLASSES), off)
    return out.scatter_(1, y.view(-1, 1), 1.0 - smoothing + off)


def mixup(x, y, lam):
    x = x * lam + x.flip(0) * (1.0 - lam)
    return x, one_hot(y) * lam + one_hot(y.flip(0)) * (1.0 - lam)  # <- mixed_label


torch.manual_seed(0)
model = VisionTransformer()
torch.save(model.state_dict(), sys.argv[1])
criterion = SoftTargetCrossEntropy()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.3)  # <- decoupled
data = torch.Generator().manual_seed(99)
losses = []
for step in range(4):
    images = torch.randn(6, 3, IMG, IMG, generator=data)
    classes = torch.randint(0, CLASSES, (6,), generator=data)
    lam = 0.3 + 0.15 * step
    images, target = mixup(images, classes, lam)  # <- mixed_label
    loss = criterion(model(images), target)  # <- mixed_label
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decoupled
    losses.append(loss.item())
print(losses)
