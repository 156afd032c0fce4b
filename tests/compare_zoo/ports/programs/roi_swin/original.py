# SPDX-License-Identifier: Apache-2.0
"""Train a tiny Swin Transformer: shifted windows, label smoothing, AdamW groups, warmup-cosine, accumulation."""
import math
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(31)


def window_partition(x, ws):
    B, H, W, C = x.shape
    x = x.view(B, H // ws, ws, W // ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, ws * ws, C)


def window_reverse(windows, ws, H, W):
    B = windows.shape[0] // (H * W // ws // ws)
    x = windows.view(B, H // ws, W // ws, ws, ws, -1)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, -1)


class WindowAttention(nn.Module):
    def __init__(self, dim, ws, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.empty((2 * ws - 1) ** 2, num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.3)
        coords = torch.stack(torch.meshgrid(torch.arange(ws), torch.arange(ws), indexing="ij")).flatten(1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + ws - 1
        index = relative[..., 0] * (2 * ws - 1) + relative[..., 1]
        self.register_buffer("relative_position_index", index)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask):
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        attn = attn + bias.view(N, N, -1).permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            nW = mask.shape[0]
            attn = attn.view(B_ // nW, nW, self.num_heads, N, N) + mask[None, :, None]  # <- shift_mask
            attn = attn.view(-1, self.num_heads, N, N)
        x = (attn.softmax(-1) @ v).transpose(1, 2).reshape(B_, N, C)
        return self.proj(x)


class SwinBlock(nn.Module):
    def __init__(self, dim, resolution, num_heads, ws, shift):
        super().__init__()
        self.resolution, self.ws, self.shift = resolution, ws, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, ws, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        mask = None
        if shift > 0:
            region = torch.zeros(1, resolution, resolution, 1)
            slices = (slice(0, -ws), slice(-ws, -shift), slice(-shift, None))
            for i, hs in enumerate(slices):
                for j, wsl in enumerate(slices):
                    region[:, hs, wsl] = 3 * i + j
            win = window_partition(region, ws).squeeze(-1)
            mask = torch.where(win[:, None, :] == win[:, :, None], 0.0, -100.0)  # <- shift_mask
        self.register_buffer("attn_mask", mask, persistent=False)

    def forward(self, x):
        R = self.resolution
        h = self.norm1(x)
        if self.shift:
            h = torch.roll(h, (-self.shift, -self.shift), dims=(1, 2))
        h = window_reverse(self.attn(window_partition(h, self.ws), self.attn_mask), self.ws, R, R)
        if self.shift:
            h = torch.roll(h, (self.shift, self.shift), dims=(1, 2))
        x = x + h
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self, dim=24, num_classes=5):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 2, stride=2)
        self.blocks = nn.Sequential(SwinBlock(dim, 8, 3, 4, 0), SwinBlock(dim, 8, 3, 4, 2))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.patch_embed(x).permute(0, 2, 3, 1)
        x = self.norm(self.blocks(x))
        return self.head(x.mean(dim=(1, 2)))


def set_weight_decay(model):
    has_decay, no_decay = [], []
    for name, p in model.named_parameters():
        skip = p.ndim == 1 or "relative_position_bias_table" in name  # <- no_decay
        (no_decay if skip else has_decay).append(p)
    return [{"params": has_decay}, {"params": no_decay, "weight_decay": 0.0}]  # <- no_decay


def warmup_cosine(step, warmup=2, total=6):
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))  # <- cosine_step


ACCUM = 2
model = Swin()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
optimizer = torch.optim.AdamW(set_weight_decay(model), lr=5e-3, weight_decay=0.3, eps=1e-4)  # <- no_decay
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_cosine)
gen = torch.Generator().manual_seed(64)
losses = []
for step in range(5):
    total_loss = 0.0
    optimizer.zero_grad()
    for micro in range(ACCUM):
        x = torch.randn(4, 3, 16, 16, generator=gen)
        y = torch.randint(0, 5, (4,), generator=gen)
        loss = criterion(model(x), y) / ACCUM  # <- smoothing accum_mean
        loss.backward()  # <- accum_mean
        total_loss += loss.item()
    optimizer.step()  # <- no_decay cosine_step
    scheduler.step()  # <- cosine_step
    losses.append(total_loss)
print(losses)
