# SPDX-License-Identifier: Apache-2.0
"""Small DDPM U-Net, v-prediction, cosine schedule, AdamW with warm-up, EMA of the weights."""
import copy
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(5)
T = 50


def timestep_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float32) / half)
    args = t.float()[:, None] * freqs[None]
    return torch.cat([args.sin(), args.cos()], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(emb, 2 * cout)
        self.norm2 = nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.emb(F.silu(e))[:, :, None, None].chunk(2, dim=1)
        h = self.norm2(h) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(h))


class Attention(nn.Module):
    def __init__(self, ch, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, ch)
        self.qkv = nn.Conv1d(ch, 3 * ch, 1)
        self.proj = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).flatten(2)).reshape(b * self.heads, 3 * c // self.heads, h * w).chunk(3, 1)
        scale = (c // self.heads) ** -0.25
        a = torch.einsum("bct,bcs->bts", q * scale, k * scale).softmax(-1)
        out = torch.einsum("bts,bcs->bct", a, v).reshape(b, c, h * w)
        return x + self.proj(out).view(b, c, h, w)


class UNet(nn.Module):
    def __init__(self, ch=8, emb=16):
        super().__init__()
        self.ch = ch
        self.time = nn.Sequential(nn.Linear(ch, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.stem = nn.Conv2d(1, ch, 3, padding=1)
        self.down = ResBlock(ch, ch, emb)
        self.pool = nn.Conv2d(ch, 2 * ch, 3, stride=2, padding=1)
        self.mid = ResBlock(2 * ch, 2 * ch, emb)
        self.attn = Attention(2 * ch)
        self.up = ResBlock(3 * ch, ch, emb)
        self.out = nn.Sequential(nn.GroupNorm(4, ch), nn.SiLU(), nn.Conv2d(ch, 1, 3, padding=1))

    def forward(self, x, t):
        e = self.time(timestep_embedding(t, self.ch))
        s = self.down(self.stem(x), e)
        m = self.attn(self.mid(self.pool(s), e))
        m = F.interpolate(m, scale_factor=2, mode="nearest")
        return self.out(self.up(torch.cat([m, s], dim=1), e))


def cosine_alphas_cumprod(n, s=0.008):
    x = torch.arange(n + 1, dtype=torch.float64) / n
    f = torch.cos((x + s) / (1 + s) * math.pi / 2) ** 2
    betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
    return torch.cumprod(1 - betas, 0).float()


model = UNet()
torch.save(model.state_dict(), sys.argv[1])
ema = copy.deepcopy(model).requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.02)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min(1.0, (i + 1) / 3))
abar = cosine_alphas_cumprod(T)

gen = torch.Generator().manual_seed(21)
losses = []
for step in range(5):
    x0 = torch.randn(8, 1, 8, 8, generator=gen).clamp(-1, 1)
    t = torch.randint(0, T, (8,), generator=gen)
    noise = torch.randn(x0.shape, generator=gen)
    a = abar[t].sqrt().view(-1, 1, 1, 1)
    s = (1 - abar[t]).sqrt().view(-1, 1, 1, 1)
    xt = a * x0 + s * noise
    v = a * noise - s * x0
    loss = F.mse_loss(model(xt, t), v)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    decay = min(0.99, (1 + step) / (10 + step))
    with torch.no_grad():
        for pe, p in zip(ema.parameters(), model.parameters()):
            pe.mul_(decay).add_(p, alpha=1 - decay)
    losses.append(loss.item())
print(losses)
