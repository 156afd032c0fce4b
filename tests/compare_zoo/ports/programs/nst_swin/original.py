# SPDX-License-Identifier: Apache-2.0
"""Swin Transformer in the manner of microsoft/Swin-Transformer, two blocks and a patch merging."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


def window_partition(x, ws):
    B, H, W, C = x.shape
    x = x.view(B, H // ws, ws, W // ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, ws * ws, C)


def window_reverse(windows, ws, H, W):
    B = windows.shape[0] // (H * W // ws // ws)
    x = windows.view(B, H // ws, W // ws, ws, ws, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)


class WindowAttention(nn.Module):
    def __init__(self, dim, ws, num_heads):
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * ws - 1) ** 2, num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.5)
        coords = torch.stack(torch.meshgrid(torch.arange(ws), torch.arange(ws), indexing="ij"))
        coords = torch.flatten(coords, 1)
        rel = coords[:, :, None] - coords[:, None, :]  # <- bias_index
        rel = rel.permute(1, 2, 0).contiguous()
        rel += ws - 1
        rel[:, :, 0] *= 2 * ws - 1  # <- bias_index
        self.register_buffer("relative_position_index", rel.sum(-1), persistent=False)
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, C // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        index = self.relative_position_index.view(-1)
        bias = self.relative_position_bias_table[index].view(N, N, -1)  # <- bias_index
        attn = attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)  # <- bias_index
        if mask is not None:
            nW = mask.shape[0]
            attn = attn.view(B_ // nW, nW, self.num_heads, N, N)
            attn = attn + mask.unsqueeze(1).unsqueeze(0)  # <- shift_mask
            attn = attn.view(-1, self.num_heads, N, N)
        x = (attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(B_, N, C)
        return self.proj(x)


class SwinBlock(nn.Module):
    def __init__(self, dim, res, num_heads, ws, shift):
        super().__init__()
        self.res, self.ws, self.shift = res, ws, shift
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, ws, num_heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.attn_mask = None
        if shift:
            img = torch.zeros(1, res, res, 1)
            slices = (slice(0, -ws), slice(-ws, -shift), slice(-shift, None))  # <- shift_mask
            for n, (h, w) in enumerate((h, w) for h in slices for w in slices):
                img[:, h, w] = n
            win = window_partition(img, ws).squeeze(-1)
            diff = win.unsqueeze(1) - win.unsqueeze(2)
            self.attn_mask = torch.zeros_like(diff).masked_fill(diff != 0, -100.0)  # <- shift_mask

    def forward(self, x):
        H = W = self.res
        shortcut, x = x, self.norm1(x)
        if self.shift:
            x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        x = window_reverse(self.attn(window_partition(x, self.ws), self.attn_mask), self.ws, H, W)
        if self.shift:
            x = torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))
        x = shortcut + x
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 2, 2)
        self.blocks = nn.ModuleList(SwinBlock(dim, 8, 2, 4, s) for s in (0, 2))
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.merge_norm = nn.LayerNorm(4 * dim)
        self.norm, self.head = nn.LayerNorm(2 * dim), nn.Linear(2 * dim, 7)

    def forward(self, x):
        x = self.patch_embed(x).permute(0, 2, 3, 1)
        for blk in self.blocks:
            x = blk(x)
        x0, x1 = x[:, 0::2, 0::2], x[:, 1::2, 0::2]
        x2, x3 = x[:, 0::2, 1::2], x[:, 1::2, 1::2]
        x = torch.cat([x0, x1, x2, x3], -1)  # <- merge_order
        x = self.reduction(self.merge_norm(x))  # <- merge_order
        return self.head(self.norm(x).mean((1, 2)))


torch.manual_seed(0)
model = Swin()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)  # <- nesterov
gen = torch.Generator().manual_seed(5)
losses = []
for _ in range(4):
    x, y = torch.randn(4, 3, 16, 16, generator=gen), torch.randint(0, 7, (4,), generator=gen)
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1)  # <- smoothing
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- nesterov
    losses.append(loss.item())
print(losses)
