# SPDX-License-Identifier: Apache-2.0
"""A vision transformer as in timm, fine-tuned with layer-wise rate decay and label smoothing."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class PatchEmbed(nn.Module):
    def __init__(self, patch_size=4, in_chans=3, embed_dim=32):
        super().__init__()
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)  # <- patch_order


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x)  # <- qkv_layout
        qkv = qkv.reshape(B, N, 3, self.num_heads, C // self.num_heads)  # <- qkv_layout
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # <- qkv_layout
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class LayerScale(nn.Module):
    def __init__(self, dim, init_values=0.3):
        super().__init__()
        self.gamma = nn.Parameter(init_values * torch.ones(dim))

    def forward(self, x):
        return x * self.gamma


def drop_path(x, drop_prob=0.0, training=False):
    if drop_prob == 0.0 or not training:
        return x
    keep = 1 - drop_prob
    return x * x.new_empty((x.shape[0], 1, 1)).bernoulli_(keep) / keep


class Block(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, num_heads)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim))
        self.ls1, self.ls2, self.rate = LayerScale(dim), LayerScale(dim), 0.0

    def forward(self, x):
        x = x + drop_path(self.ls1(self.attn(self.norm1(x))), self.rate, self.training)
        return x + drop_path(self.ls2(self.mlp(self.norm2(x))), self.rate, self.training)


class VisionTransformer(nn.Module):
    def __init__(self, depth=3, dim=32, num_heads=4, num_classes=5, num_patches=9):
        super().__init__()
        self.patch_embed = PatchEmbed(embed_dim=dim)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.1)
        self.pos_embed = nn.Parameter(torch.randn(1, num_patches + 1, dim) * 0.2)
        self.blocks = nn.Sequential(*[Block(dim, num_heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)  # <- cls_position
        x = x + self.pos_embed  # <- cls_position
        return self.head(self.norm(self.blocks(x))[:, 0])


def get_layer_id(name, num_layers):
    if name in ("cls_token", "pos_embed") or name.startswith("patch_embed"):
        return 0
    if name.startswith("blocks"):
        return int(name.split(".")[1]) + 1  # <- rate_decay
    return num_layers


def param_groups_lrd(model, lr, weight_decay, layer_decay):
    num_layers, groups = len(model.blocks) + 1, {}
    for name, p in model.named_parameters():
        decay = 0.0 if p.ndim == 1 or name in ("cls_token", "pos_embed") else weight_decay
        layer_id = get_layer_id(name, num_layers)  # <- rate_decay
        group = groups.setdefault((layer_id, decay), {
            "params": [], "weight_decay": decay,
            "lr": lr * layer_decay ** (num_layers - layer_id)})  # <- rate_decay
        group["params"].append(p)
    return list(groups.values())


torch.manual_seed(0)
model = VisionTransformer()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(param_groups_lrd(model, 4e-3, 0.05, 0.65))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
generator = torch.Generator().manual_seed(3)
losses = []
for _ in range(4):
    images = torch.randn(6, 3, 12, 12, generator=generator)
    labels = torch.randint(0, 5, (6,), generator=generator)
    loss = criterion(model(images), labels)  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rate_decay
    losses.append(loss.item())
print(losses)
