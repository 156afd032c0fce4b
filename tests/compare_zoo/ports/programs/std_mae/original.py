# SPDX-License-Identifier: Apache-2.0
"""Masked autoencoder in the style of the authors' code: shuffle, keep, encode, restore, decode."""

import sys

import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)  # <- heads
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads)  # <- heads
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # <- heads
        attn = (q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1)  # <- heads
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, num_heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MaskedAutoencoderViT(nn.Module):
    def __init__(self, img=16, patch=4, dim=24, dec=16):
        super().__init__()
        self.p, n = patch, (img // patch) ** 2
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.cls_token = nn.Parameter(0.1 * torch.randn(1, 1, dim))
        self.pos_embed = nn.Parameter(0.1 * torch.randn(1, n + 1, dim))
        self.blocks = nn.ModuleList([Block(dim, 4) for _ in range(2)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.decoder_embed = nn.Linear(dim, dec)
        self.mask_token = nn.Parameter(0.1 * torch.randn(1, 1, dec))
        self.decoder_pos_embed = nn.Parameter(0.1 * torch.randn(1, n + 1, dec))
        self.decoder_blocks = nn.ModuleList([Block(dec, 2)])
        self.decoder_pred = nn.Linear(dec, patch**2 * 3)

    def patchify(self, imgs):
        h = imgs.shape[2] // self.p
        x = imgs.reshape(len(imgs), 3, h, self.p, h, self.p)
        x = torch.einsum("nchpwq->nhwpqc", x)  # <- pixels
        return x.reshape(len(imgs), h * h, self.p**2 * 3)  # <- pixels

    def forward(self, imgs, noise, keep=4):
        x = self.patch_embed(imgs).flatten(2).transpose(1, 2)
        x = x + self.pos_embed[:, 1:]
        N, L, D = x.shape
        ids_shuffle = torch.argsort(noise, dim=1)
        ids_restore = torch.argsort(ids_shuffle, dim=1)  # <- restore
        ids_keep = ids_shuffle[:, :keep]
        x = torch.gather(x, 1, ids_keep.unsqueeze(-1).repeat(1, 1, D))
        mask = torch.ones(N, L)
        mask[:, :keep] = 0
        mask = torch.gather(mask, 1, ids_restore)
        cls_token = self.cls_token + self.pos_embed[:, :1]
        x = torch.cat((cls_token.expand(N, -1, -1), x), dim=1)
        for blk in self.blocks:
            x = blk(x)
        x = self.decoder_embed(self.norm(x))
        mask_tokens = self.mask_token.repeat(N, L - keep, 1)
        x_ = torch.cat([x[:, 1:], mask_tokens], dim=1)  # <- restore
        x_ = torch.gather(x_, 1, ids_restore.unsqueeze(-1).repeat(1, 1, x.shape[2]))  # <- restore
        x = torch.cat([x[:, :1], x_], dim=1) + self.decoder_pos_embed
        for blk in self.decoder_blocks:
            x = blk(x)
        pred = self.decoder_pred(x)[:, 1:]
        target = self.patchify(imgs)
        mean = target.mean(dim=-1, keepdim=True)
        var = target.var(dim=-1, keepdim=True)  # <- patchnorm
        target = (target - mean) / (var + 1.0e-6) ** 0.5  # <- patchnorm
        loss = ((pred - target) ** 2).mean(dim=-1)
        return (loss * mask).sum() / mask.sum()


torch.manual_seed(0)
model = MaskedAutoencoderViT()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(  # <- decoupled
    model.parameters(), lr=6e-3, betas=(0.9, 0.95), weight_decay=0.05
)  # <- decoupled
gen = torch.Generator().manual_seed(77)
losses = []
for step in range(4):
    imgs = torch.rand(3, 3, 16, 16, generator=gen)
    loss = model(imgs, torch.rand(3, 16, generator=gen))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decoupled
    losses.append(loss.item())
print(losses)
