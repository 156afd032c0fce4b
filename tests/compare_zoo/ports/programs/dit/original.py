# SPDX-License-Identifier: Apache-2.0
"""A diffusion transformer (Peebles and Xie, 2023): patches with sine-cosine positions, adaLN-Zero
blocks conditioned on the noise level and the class, a loss of the noise, an average of the weights.
"""

import copy
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIZE, PATCH, CHANNELS, DIM, HEADS, DEPTH, CLASSES, STEPS = 8, 2, 3, 16, 2, 2, 6, 50
BATCH = 4


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)  # <- chunks


class TimestepEmbedder(nn.Module):
    def __init__(self, frequencies=12):
        super().__init__()
        self.frequencies = frequencies
        self.mlp = nn.Sequential(nn.Linear(frequencies, DIM), nn.SiLU(), nn.Linear(DIM, DIM))

    def forward(self, t):
        half = self.frequencies // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)
        args = t[:, None].float() * freqs[None]
        return self.mlp(torch.cat([torch.cos(args), torch.sin(args)], dim=-1))  # <- cosine


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q * (c // HEADS) ** -0.5) @ k.transpose(-2, -1)  # <- scaled
        x = attn.softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class DiTBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM, elementwise_affine=False, eps=1e-6)
        self.attn = Attention()
        self.norm2 = nn.LayerNorm(DIM, elementwise_affine=False, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(DIM, 4 * DIM),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * DIM, DIM),  # <- tanh
        )
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(DIM, 6 * DIM))

    def forward(self, x, c):
        modulation = self.adaLN_modulation(c)
        shift_msa, scale_msa, gate_msa, shift_mlp, scale_mlp, gate_mlp = modulation.chunk(
            6, dim=1
        )  # <- chunks
        y = self.attn(modulate(self.norm1(x), shift_msa, scale_msa))  # <- chunks
        x = x + gate_msa.unsqueeze(1) * y
        y = self.mlp(modulate(self.norm2(x), shift_mlp, scale_mlp))  # <- tanh
        return x + gate_mlp.unsqueeze(1) * y


class FinalLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_final = nn.LayerNorm(DIM, elementwise_affine=False, eps=1e-6)
        self.linear = nn.Linear(DIM, PATCH * PATCH * CHANNELS)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(DIM, 2 * DIM))

    def forward(self, x, c):
        shift, scale = self.adaLN_modulation(c).chunk(2, dim=1)
        return self.linear(modulate(self.norm_final(x), shift, scale))


def sincos_2d():
    side = np.arange(SIZE // PATCH, dtype=np.float64)
    grid = np.stack(np.meshgrid(side, side), axis=0)  # <- rows
    omega = 1.0 / 10000 ** (np.arange(DIM // 4, dtype=np.float64) / (DIM / 4.0))
    out = [np.einsum("m,d->md", axis.reshape(-1), omega) for axis in grid]
    parts = [f(angle) for angle in out for f in (np.sin, np.cos)]
    return torch.from_numpy(np.concatenate(parts, axis=1)).float()  # <- rows


class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.x_embedder = nn.Conv2d(CHANNELS, DIM, PATCH, stride=PATCH)
        self.t_embedder = TimestepEmbedder()
        self.y_embedder = nn.Embedding(CLASSES, DIM)
        self.register_buffer("pos_embed", sincos_2d().unsqueeze(0))
        self.blocks = nn.ModuleList(DiTBlock() for _ in range(DEPTH))
        self.final_layer = FinalLayer()

    def unpatchify(self, x):
        side = SIZE // PATCH
        x = x.reshape(-1, side, side, PATCH, PATCH, CHANNELS)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(-1, CHANNELS, SIZE, SIZE)  # <- pixels

    def forward(self, x, t, y):
        x = self.x_embedder(x).flatten(2).transpose(1, 2) + self.pos_embed  # <- rows
        c = self.t_embedder(t) + self.y_embedder(y)
        for block in self.blocks:
            x = block(x, c)
        return self.unpatchify(self.final_layer(x, c))


@torch.no_grad()
def update_ema(ema, model, decay):
    for averaged, param in zip(ema.parameters(), model.parameters()):
        averaged.mul_(decay).add_(param.data, alpha=1 - decay)  # <- average


torch.manual_seed(131)
model = DiT()
for name, p in model.named_parameters():
    if "adaLN" in name or "final" in name:
        nn.init.normal_(p, std=0.2)
torch.save(model.state_dict(), sys.argv[1])
ema = copy.deepcopy(model)
betas = torch.linspace(1e-3, 0.2, STEPS)
alphas_cumprod = torch.cumprod(1 - betas, dim=0)  # <- schedule
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
rng = np.random.default_rng(137)
losses = []
for _ in range(3):
    images = torch.from_numpy(rng.normal(size=(BATCH, CHANNELS, SIZE, SIZE)).astype(np.float32))
    noise = torch.from_numpy(rng.normal(size=(BATCH, CHANNELS, SIZE, SIZE)).astype(np.float32))
    t = torch.from_numpy(rng.integers(0, STEPS, BATCH))
    y = torch.from_numpy(rng.integers(0, CLASSES, BATCH))
    signal = alphas_cumprod[t].view(-1, 1, 1, 1)  # <- schedule
    noisy = signal.sqrt() * images + (1 - signal).sqrt() * noise
    loss = F.mse_loss(model(noisy, t, y), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    update_ema(ema, model, 0.9)  # <- average
    with torch.no_grad():
        averaged = F.mse_loss(ema(noisy, t, y), noise)
    losses += [loss.item(), averaged.item()]
