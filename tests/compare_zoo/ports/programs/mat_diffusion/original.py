# SPDX-License-Identifier: Apache-2.0
"""Image diffusion: cosine schedule, v-prediction with min-SNR weights, FiLM time embedding."""

import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, CH, SIDE, EMB, LABELS = 20, 6, 6, 8, 3


def cosine_alphas_bar():
    t = torch.arange(STEPS + 1, dtype=torch.float64) / STEPS
    f = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2  # <- schedule
    betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)  # <- schedule
    return torch.cumprod(1 - betas, 0).float()  # <- schedule


class TimeEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(EMB, EMB), nn.SiLU(), nn.Linear(EMB, EMB))
        self.label = nn.Embedding(LABELS, EMB)

    def forward(self, t, y):
        half = EMB // 2
        freq = torch.exp(-math.log(1000.0) * torch.arange(half) / (half - 1))  # <- frequencies
        angle = t[:, None].float() * freq[None]  # <- frequencies
        return self.mlp(torch.cat([angle.sin(), angle.cos()], dim=1)) + self.label(y)


class FilmBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(3, CH, eps=1e-3)
        self.conv = nn.Conv2d(CH, CH, 3, padding=1, padding_mode="circular")
        self.film = nn.Linear(EMB, 2 * CH)

    def forward(self, x, emb):
        scale, shift = self.film(F.silu(emb)).chunk(2, dim=1)
        h = self.norm(x) * (1 + scale[:, :, None, None]) + shift[:, :, None, None]  # <- film_one
        return x + self.conv(F.silu(h))


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(CH, num_heads=2, batch_first=True)

    def forward(self, x):
        b, c, h, w = x.shape
        seq = x.flatten(2).transpose(1, 2)
        out, _ = self.mha(seq, seq, seq, need_weights=False)
        return x + out.transpose(1, 2).view(b, c, h, w)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = TimeEmbedding()
        self.stem = nn.Conv2d(1, CH, 1)
        self.a, self.att, self.b = FilmBlock(), SelfAttention(), FilmBlock()
        self.out = nn.Conv2d(CH, 1, 1)

    def forward(self, x, t, y):
        emb = self.time(t, y)
        return self.out(self.b(self.att(self.a(self.stem(x), emb)), emb))


def batches(n, batch=4):
    gen = torch.Generator().manual_seed(1234)
    for _ in range(n):
        x0 = torch.randn(batch, 1, SIDE, SIDE, generator=gen).cumsum(2) * 0.5
        noise = torch.randn(batch, 1, SIDE, SIDE, generator=gen)
        t = torch.randint(0, STEPS, (batch,), generator=gen)
        yield x0, noise, t, torch.randint(0, LABELS, (batch,), generator=gen)


torch.manual_seed(0)
model = Denoiser()
torch.save(model.state_dict(), sys.argv[1])
ema = {k: v.clone() for k, v in model.state_dict().items()}
abar = cosine_alphas_bar()
optimizer = torch.optim.Adamax(  # <- infinity_norm
    model.parameters(), lr=0.01, betas=(0.8, 0.95), eps=1e-2
)  # <- infinity_norm
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
losses = []
for step, (x0, noise, t, y) in enumerate(batches(5)):
    a = abar[t].sqrt()[:, None, None, None]
    s = (1 - abar[t]).sqrt()[:, None, None, None]
    v = a * noise - s * x0  # <- v_target
    pred = model(a * x0 + s * noise, t, y)
    snr = abar[t] / (1 - abar[t])
    weight = torch.clamp(snr, max=5.0) / (snr + 1)
    loss = (weight * ((pred - v) ** 2).mean(dim=(1, 2, 3))).mean()  # <- v_target
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- infinity_norm
    scheduler.step()
    for k, p in model.state_dict().items():
        ema[k].lerp_(p, 0.1)
    if step == 2:
        model.load_state_dict(ema)
    losses.append(loss.item())
print(losses)
