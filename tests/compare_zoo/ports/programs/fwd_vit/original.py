# SPDX-License-Identifier: Apache-2.0
"""timm-style vision transformer (conv patch embedding, fused qkv), cross entropy on 3 batches."""
import sys
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class PatchEmbed(nn.Module):
    def __init__(self, patch, dim):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)  # <- patch_order


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5  # <- scale
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)  # <- scale
        x = attn.softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Mlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, dim, num_heads, norm_layer):
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = Attention(dim, num_heads)
        self.norm2 = norm_layer(dim)
        self.mlp = Mlp(dim, dim * 4)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        x = x + self.mlp(self.norm2(x))  # <- second_residual
        return x  # <- second_residual


class VisionTransformer(nn.Module):
    def __init__(self, img=24, patch=6, dim=32, depth=3, num_heads=4, classes=10):
        super().__init__()
        norm_layer = partial(nn.LayerNorm, eps=1e-6)
        self.patch_embed = PatchEmbed(patch, dim)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.5)
        self.pos_embed = nn.Parameter(torch.randn(1, (img // patch) ** 2 + 1, dim) * 0.4)
        self.blocks = nn.Sequential(*[Block(dim, num_heads, norm_layer) for _ in range(depth)])
        self.norm = norm_layer(dim)
        self.head = nn.Linear(dim, classes)

    def init_weights(self):
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.25)
                nn.init.normal_(m.bias, std=0.1)
            elif isinstance(m, nn.LayerNorm):
                nn.init.uniform_(m.weight, 0.6, 1.4)
                nn.init.normal_(m.bias, std=0.1)
        return self

    def forward(self, x):
        x = self.patch_embed(x)  # <- patch_order
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = x + self.pos_embed  # <- pos_embed
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0])


def preprocess(images):
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)  # <- normalise
    return (images.float() / 255.0 - mean) / std  # <- normalise


if __name__ == "__main__":
    torch.manual_seed(0)
    model = VisionTransformer().init_weights().eval()
    torch.save(model.state_dict(), sys.argv[1])
    rng = torch.Generator().manual_seed(21)
    losses = []
    with torch.no_grad():
        for _ in range(3):
            images = torch.randint(0, 256, (4, 3, 24, 24), generator=rng, dtype=torch.uint8)
            labels = torch.randint(0, 10, (4,), generator=rng)
            logits = model(preprocess(images))
            losses.append(F.cross_entropy(logits, labels, reduction="sum").item())
    print(losses)
