# SPDX-License-Identifier: Apache-2.0
"""ViT on 16x16 grey images with mixup, AdamW parameter groups, warmup-cosine, clipping and an
EMA copy."""
import copy
import math
import sys

import torch
from torch import nn

DIM, HEADS, DEPTH, PATCH, CLASSES, STEPS = 24, 3, 2, 4, 6, 5


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(DIM, eps=1e-6), Attention()
        self.norm2 = nn.LayerNorm(DIM, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(),  # <- gelu_kind
                                 nn.Linear(2 * DIM, DIM))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # <- gelu_kind


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(1, DIM, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.randn(1, 1, DIM) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, 17, DIM) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, img):
        x = self.patch_embed(img).flatten(2).transpose(1, 2)  # <- patch_order
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x)[:, 0])


def make_data():
    g = torch.Generator().manual_seed(5)
    return [(torch.randn(12, 1, 16, 16, generator=g), torch.randint(0, CLASSES, (12,), generator=g),
             torch.randperm(12, generator=g), float(torch.rand((), generator=g)))
            for _ in range(STEPS)]


torch.manual_seed(0)
net = ViT()
torch.save(net.state_dict(), sys.argv[1])
ema = copy.deepcopy(net).requires_grad_(False)

groups = [{"params": [p for p in net.parameters() if p.ndim == 2 or p.ndim == 4],  # <- decay_group
           "weight_decay": 0.05},
          {"params": [p for p in net.parameters() if p.ndim not in (2, 4)],  # <- decay_group
           "weight_decay": 0.0}]
opt = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.98), eps=1e-6)  # <- decay_group


def factor(t):
    if t < 2:
        return (t + 1) / 2  # <- warm_up
    return 0.5 * (1 + math.cos(math.pi * (t - 2) / (STEPS - 2)))


sched = torch.optim.lr_scheduler.LambdaLR(opt, factor)  # <- warm_up
ce = nn.CrossEntropyLoss()
losses = []
for img, label, perm, lam in make_data():
    mixed = lam * img + (1 - lam) * img[perm]
    logits = net(mixed)
    loss = lam * ce(logits, label) + (1 - lam) * ce(logits, label[perm])  # <- mix_label
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()  # <- decay_group warm_up
    sched.step()  # <- warm_up
    with torch.no_grad():
        for e, p in zip(ema.parameters(), net.parameters()):
            e.mul_(0.9).add_(p, alpha=0.1)
    losses.append(loss.item())
print(losses)
