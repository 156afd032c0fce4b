# SPDX-License-Identifier: Apache-2.0
"""DINO: student ViT on global and local crops, momentum teacher on global crops, centring."""
import copy
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        attn = ((q @ k.transpose(-2, -1)) * (C // self.heads) ** -0.5).softmax(dim=-1)
        x = x + self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, dim=16, depth=2, heads=2, patch=4, img=12):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, dim))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 1 + (img // patch) ** 2, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        n = x.shape[1]
        pos = self.pos_embed[:, : n + 1]            # local crops use the first positions
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + pos
        for blk in self.blocks:
            x = blk(x)
        return self.norm(x)[:, 0]


class DINOHead(nn.Module):
    def __init__(self, dim=16, hidden=24, bottleneck=8, out=20):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, bottleneck))
        self.last = nn.Parameter(torch.randn(out, bottleneck))

    def forward(self, x):
        x = F.normalize(self.mlp(x), dim=-1)
        return F.linear(x, F.normalize(self.last, dim=1))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = ViT(), DINOHead()

    def forward(self, crops):
        sizes = torch.tensor([c.shape[-1] for c in crops])
        counts = torch.unique_consecutive(sizes, return_counts=True)[1].tolist()
        feats, start = [], 0
        for c in counts:
            feats.append(self.backbone(torch.cat(crops[start:start + c])))
            start += c
        return self.head(torch.cat(feats))


student = Net()
torch.save(student.state_dict(), sys.argv[1])
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad = False

center = torch.zeros(1, 20)
regularized = [p for p in student.parameters() if p.ndim > 1]
others = [p for p in student.parameters() if p.ndim <= 1]
optimizer = torch.optim.AdamW([{"params": regularized, "weight_decay": 0.04}, {"params": others, "weight_decay": 0.0}], lr=1e-3)
gen = torch.Generator().manual_seed(310)
steps, B = 5, 4
losses = []
for it in range(steps):
    base = torch.randn(B, 3, 12, 12, generator=gen)
    crops = [base + 0.2 * torch.randn(B, 3, 12, 12, generator=gen) for _ in range(2)]
    crops += [base[:, :, o:o + 8, o:o + 8] + 0.2 * torch.randn(B, 3, 8, 8, generator=gen) for o in (0, 4, 2)]
    t_out = teacher(crops[:2])
    s_out = (student(crops) / 0.1).chunk(5)
    probs = F.softmax((t_out - center) / 0.05, dim=-1).detach().chunk(2)
    total, n = 0, 0
    for iq, q in enumerate(probs):
        for v in range(len(s_out)):
            if v == iq:
                continue
            total = total + torch.sum(-q * F.log_softmax(s_out[v], dim=-1), dim=-1).mean()
            n += 1
    loss = total / n
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        center = center * 0.9 + t_out.mean(dim=0, keepdim=True) * 0.1
        m = 1 - (1 - 0.9) * (math.cos(math.pi * it / steps) + 1) / 2
        for pt, ps in zip(teacher.parameters(), student.parameters()):
            pt.mul_(m).add_((1 - m) * ps)
    losses.append(loss.item())
print(losses)
