# SPDX-License-Identifier: Apache-2.0
"""Fine-tune a small vision transformer with mixup and layer-wise learning rates."""
import sys
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

IMAGE, PATCH, CHANNELS, CLASSES = 16, 4, 3, 6
DIM, DEPTH, HEADS, MLP = 32, 3, 4, 64
LR, WEIGHT_DECAY, LAYER_DECAY = 8e-3, 0.2, 0.7
norm_layer = partial(nn.LayerNorm, eps=1e-6)  # <- norm_eps


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(CHANNELS, DIM, kernel_size=PATCH, stride=PATCH)  # <- patch_order

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)  # <- patch_order


class LayerScale(nn.Module):
    def __init__(self, init=0.3):
        super().__init__()
        self.gamma = nn.Parameter(init * torch.ones(DIM))

    def forward(self, x):
        return x * self.gamma


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = norm_layer(DIM)
        self.attn = Attention()
        self.ls1 = LayerScale()
        self.norm2 = norm_layer(DIM)
        self.fc1, self.fc2 = nn.Linear(DIM, MLP), nn.Linear(MLP, DIM)
        self.ls2 = LayerScale()

    def forward(self, x):
        x = x + self.ls1(self.attn(self.norm1(x)))  # <- norm_eps
        return x + self.ls2(self.fc2(F.gelu(self.fc1(self.norm2(x)))))  # <- norm_eps


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.randn(1, 1, DIM) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, (IMAGE // PATCH) ** 2 + 1, DIM) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = norm_layer(DIM)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, x):
        x = self.patch_embed(x)  # <- patch_order
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])  # <- norm_eps


def layer_id(name):
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1  # <- layer_decay_shifted
    return DEPTH + 1 if name.startswith(("norm", "head")) else 0


def param_groups(model):
    groups = {}
    for name, p in model.named_parameters():
        plain = p.ndim <= 1 or name in ("cls_token", "pos_embed")  # <- decay_on_stacked
        group = groups.setdefault((layer_id(name), plain), {
            "params": [],
            "weight_decay": 0.0 if plain else WEIGHT_DECAY,  # <- decay_on_stacked
            "lr": LR * LAYER_DECAY ** (DEPTH + 1 - layer_id(name)),  # <- layer_decay_shifted
        })
        group["params"].append(p)
    return list(groups.values())


class Mixup:
    def __init__(self, generator):
        self.generator = generator

    def __call__(self, x, y):
        lam = 0.5 + 0.5 * float(torch.rand((), generator=self.generator))
        order = torch.randperm(len(x), generator=self.generator)
        hot = F.one_hot(y, CLASSES).float()
        mixed = lam * x + (1 - lam) * x[order]
        return mixed, lam * hot + (1 - lam) * hot[order]  # <- mixup_partner


def soft_target_cross_entropy(logits, target):
    return torch.sum(-target * F.log_softmax(logits, dim=-1), dim=-1).mean()  # <- mixup_partner


torch.manual_seed(21)
model = VisionTransformer()
with torch.no_grad():
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            p.normal_(std=0.1)
torch.save(model.state_dict(), sys.argv[1])

generator = torch.Generator().manual_seed(99)
mixup = Mixup(generator)
optimizer = torch.optim.AdamW(param_groups(model), betas=(0.9, 0.999), eps=1e-8)  # <- layer_decay_shifted decay_on_stacked

losses = []
for step in range(5):
    images = torch.randn(12, CHANNELS, IMAGE, IMAGE, generator=generator) * 0.5
    targets = torch.randint(0, CLASSES, (12,), generator=generator)
    images, soft = mixup(images, targets)  # <- mixup_partner
    loss = soft_target_cross_entropy(model(images), soft)  # <- mixup_partner
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- layer_decay_shifted decay_on_stacked
    losses.append(loss.item())
print(losses)
