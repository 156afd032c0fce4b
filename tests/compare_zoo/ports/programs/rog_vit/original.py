# SPDX-License-Identifier: Apache-2.0
"""A DeiT-like classifier with layer scale, label smoothing, SGD and averaged weights that are evaluated."""
import math
import sys

import torch
import torch.nn as nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.set_num_threads(1)


class PatchEmbed(nn.Module):
    def __init__(self, img_size=12, patch_size=4, in_chans=3, embed_dim=32):
        super().__init__()
        self.num_patches = (img_size // patch_size) ** 2
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)  # <- patch_order

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)  # <- patch_order


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q * self.scale @ k.transpose(-2, -1)).softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))


class LayerScale(nn.Module):
    def __init__(self, dim, init_values=0.1):
        super().__init__()
        self.gamma = nn.Parameter(init_values * torch.ones(dim))

    def forward(self, x):
        return x * self.gamma


class Block(nn.Module):
    def __init__(self, dim, num_heads, norm_layer):
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = Attention(dim, num_heads)
        self.ls1 = LayerScale(dim)
        self.norm2 = norm_layer(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.ls2 = LayerScale(dim)

    def forward(self, x):
        x = x + self.ls1(self.attn(self.norm1(x)))  # <- ln_eps
        return x + self.ls2(self.mlp(self.norm2(x)))  # <- ln_eps


class VisionTransformer(nn.Module):
    def __init__(self, embed_dim=32, depth=2, num_heads=4, num_classes=7):
        super().__init__()

        def norm_layer(dim):
            return nn.LayerNorm(dim, eps=1e-6)  # <- ln_eps

        self.patch_embed = PatchEmbed(embed_dim=embed_dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, self.patch_embed.num_patches + 1, embed_dim))
        self.blocks = nn.ModuleList(Block(embed_dim, num_heads, norm_layer) for _ in range(depth))
        self.norm = norm_layer(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.normal_(self.head.weight, std=0.1)

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


torch.manual_seed(2)
model = VisionTransformer()
torch.save(model.state_dict(), sys.argv[1])
steps = 5
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-3)  # <- momentum_form
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / steps)))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing_share
ema_model = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8))  # <- ema_first_copy

g = torch.Generator().manual_seed(99)
images = torch.rand(6, 8, 3, 12, 12, generator=g)
labels = torch.randint(0, 7, (6, 8), generator=g)
losses = []
for step in range(steps):
    loss = criterion(model(images[step]), labels[step])  # <- smoothing_share
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- momentum_form
    scheduler.step()
    ema_model.update_parameters(model)  # <- ema_first_copy
    losses.append(loss.item())
ema_model.eval()
with torch.no_grad():
    losses.append(nn.functional.cross_entropy(ema_model(images[5]), labels[5]).item())  # <- ema_first_copy
print(losses)
