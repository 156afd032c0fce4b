# SPDX-License-Identifier: Apache-2.0
"""The same denoiser in the manner of a hub's library: linear projections of attention over pixels,
group norm over a view, the schedule in float32 tables on the model.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, GROUPS, TRAIN_STEPS = 8, 4, 50


def group_norm(x, weight, bias, eps=1e-5):
    n, c = x.shape[:2]
    y = x.reshape(n, GROUPS, -1)  # <- groups
    y = (y - y.mean(-1, keepdim=True)) / (
        y.var(-1, keepdim=True, correction=0) + eps
    ).sqrt()  # <- groups
    shape = (1, c) + (1,) * (x.dim() - 2)
    return y.reshape(x.shape) * weight.view(shape) + bias.view(shape)  # <- groups


class GroupNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return group_norm(x, self.weight, self.bias)


class Timesteps(nn.Module):
    def forward(self, timesteps):
        half = WIDTH // 2
        exponent = -torch.arange(half) * np.log(10000) / half  # <- times
        angles = timesteps[:, None] * exponent.exp()[None]  # <- times
        return torch.cat([angles.cos(), angles.sin()], dim=1).float()  # <- times


class ResnetBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.conv1 = GroupNorm(), nn.Conv2d(WIDTH, WIDTH, 3, 1, 1)
        self.time_scale = nn.Linear(2 * WIDTH, WIDTH)
        self.time_shift = nn.Linear(2 * WIDTH, WIDTH)
        self.norm2, self.conv2 = GroupNorm(), nn.Conv2d(WIDTH, WIDTH, 3, 1, 1)

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))  # <- groups
        temb = F.silu(temb)
        scale, shift = self.time_scale(temb), self.time_shift(temb)  # <- chunks
        h = torch.addcmul(
            shift[..., None, None], self.norm2(h), 1 + scale[..., None, None]
        )  # <- one chunks
        return x + self.conv2(F.silu(h))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.group_norm = GroupNorm()
        self.to_q, self.to_k, self.to_v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.to_out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        n, c, h, w = x.shape
        tokens = self.group_norm(x).permute(0, 2, 3, 1).reshape(n, h * w, c)
        q, k, v = self.to_q(tokens), self.to_k(tokens), self.to_v(tokens)
        weights = torch.baddbmm(
            torch.zeros(n, 1, 1), q, k.transpose(1, 2), alpha=c**-0.5
        )  # <- scale
        mixed = self.to_out(weights.softmax(2) @ v)  # <- scale
        return mixed.reshape(n, h, w, c).permute(0, 3, 1, 2) + x


class UNet2D(nn.Module):
    def __init__(self):
        super().__init__()
        self.time_proj = Timesteps()
        self.linear_1, self.linear_2 = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, 2 * WIDTH)
        self.conv_in, self.conv_out = nn.Conv2d(3, WIDTH, 3, 1, 1), nn.Conv2d(WIDTH, 3, 3, 1, 1)
        self.resnets = nn.ModuleList([ResnetBlock(), ResnetBlock()])
        self.attention, self.norm_out = Attention(), GroupNorm()

    def forward(self, sample, timestep):
        temb = self.linear_2(F.silu(self.linear_1(self.time_proj(timestep))))  # <- times
        sample = self.resnets[0](self.conv_in(sample), temb)
        sample = self.resnets[1](self.attention(sample), temb)
        return self.conv_out(F.silu(self.norm_out(sample)))


class Scheduler:
    def __init__(self):
        betas = np.linspace(1e-4, 0.02, TRAIN_STEPS)
        self.alphas_cumprod = torch.tensor(np.cumprod(1 - betas), dtype=torch.float32)

    def add_noise(self, clean, noise, timesteps):
        ab = self.alphas_cumprod[timesteps].view(-1, 1, 1, 1)
        return ab**0.5 * clean + (1 - ab) ** 0.5 * noise  # <- mixed

    def step(self, eps, before, after, sample):
        ab, previous = self.alphas_cumprod[before], self.alphas_cumprod[after]
        clean = (sample - (1 - ab).sqrt() * eps) / ab.sqrt()  # <- clipped
        clean = torch.clip(clean, -1.0, 1.0)  # <- clipped
        return previous.sqrt() * clean + (1 - previous).sqrt() * eps


NAMES = {"time_embed.0": "linear_1", "time_embed.2": "linear_2", "out.0": "norm_out"}
NAMES |= {"out.2": "conv_out", "conv_in": "conv_in", "attention.norm": "attention.group_norm"}
for number, block in enumerate(("block1", "block2")):
    inner = {"in_layers.0": "norm1", "in_layers.2": "conv1", "out_norm": "norm2"}
    inner |= {"out_rest.1": "conv2"}
    NAMES |= {f"{block}.{old}": f"resnets.{number}.{new}" for old, new in inner.items()}


def converted(old):
    new = {}
    for kind in ("weight", "bias"):
        new |= {f"{mine}.{kind}": old[f"{name}.{kind}"] for name, mine in NAMES.items()}
        for number, block in enumerate(("block1", "block2")):
            scale, shift = old[f"{block}.emb_layers.1.{kind}"].chunk(2)  # <- chunks
            new[f"resnets.{number}.time_scale.{kind}"] = scale
            new[f"resnets.{number}.time_shift.{kind}"] = shift
        for name, part in zip("qkv", old[f"attention.qkv.{kind}"].chunk(3)):
            new[f"attention.to_{name}.{kind}"] = part.squeeze(-1) if kind == "weight" else part
        out = old[f"attention.proj_out.{kind}"]
        new[f"attention.to_out.{kind}"] = out.squeeze(-1) if kind == "weight" else out
    return new


unet, scheduler = UNet2D(), Scheduler()
unet.load_state_dict(converted(torch.load(sys.argv[1])))
optimizer = torch.optim.Adam(unet.parameters(), lr=1e-3, foreach=False)
rng = np.random.default_rng(12)
losses = []
for _ in range(2):
    clean = torch.as_tensor(rng.standard_normal((2, 3, 8, 8), dtype=np.float32))
    noise = torch.as_tensor(rng.standard_normal((2, 3, 8, 8), dtype=np.float32))
    timesteps = torch.as_tensor(rng.integers(0, TRAIN_STEPS, 2))
    noisy = scheduler.add_noise(clean, noise, timesteps)
    loss = torch.mean((unet(noisy, timesteps) - noise) ** 2)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
with torch.no_grad():
    sample, half = noise, TRAIN_STEPS // 2
    for before, after in ((TRAIN_STEPS - 1, TRAIN_STEPS - 1 - half), (half, 0)):
        eps = unet(sample, torch.tensor([before] * 2))
        sample = scheduler.step(eps, before, after, sample)
    losses.append((sample**2).mean().item())
