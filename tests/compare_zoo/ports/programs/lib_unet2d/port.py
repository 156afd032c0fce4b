# SPDX-License-Identifier: Apache-2.0
"""The velocity network in own code: the time projections of all blocks in one matrix, fused
queries, keys and values, the noise schedule and the sampler written out.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 100


class Res(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.c_out = c_out
        self.norm1, self.conv1 = nn.GroupNorm(4, c_in), nn.Conv2d(c_in, c_out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, c_out), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.short = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x, shift):
        h = self.conv1(F.silu(self.norm1(x))) + shift[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.short(x)


class Attend(nn.Module):
    def __init__(self, width, head_width=8):
        super().__init__()
        self.heads = width // head_width  # <- heads
        self.norm = nn.GroupNorm(4, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        tokens = self.norm(x).flatten(2).mT
        qkv = self.qkv(tokens).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # <- heads
        out = F.scaled_dot_product_attention(*qkv)  # <- heads
        out = self.out(out.transpose(1, 2).flatten(2))
        return x + out.mT.unflatten(2, x.shape[2:])


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(1, 8, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
        sizes = [(8, 8), (8, 16), (16, 16), (16, 16), (32, 16), (24, 16), (24, 8), (16, 8)]
        self.blocks = nn.ModuleList([Res(*s) for s in sizes])
        self.attend = nn.ModuleList([Attend(16) for _ in range(4)])
        self.shifts = nn.Linear(32, sum(s[1] for s in sizes))
        self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1)  # <- pad
        self.up = nn.Conv2d(16, 16, 3, padding=1)
        self.leave_norm, self.leave = nn.GroupNorm(4, 8), nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x, t):
        angles = t[:, None] * torch.exp(-math.log(10000) / 4 * torch.arange(4.0))
        waves = torch.cat((angles.cos(), angles.sin()), dim=1)  # <- sin_cos
        shifts = self.shifts(self.time(waves))  # <- sin_cos
        shifts = shifts.split([b.c_out for b in self.blocks], 1)
        r = [lambda h, b=b, s=s: b(h, s) for b, s in zip(self.blocks, shifts)]
        a = self.attend
        x0 = self.enter(x)
        x1 = r[0](x0)
        x2 = self.down(x1)  # <- pad
        x3 = a[0](r[1](x2))
        h = r[3](a[1](r[2](x3)))
        h = a[2](r[4](torch.cat((h, x3), 1)))
        h = a[3](r[5](torch.cat((h, x2), 1)))
        h = self.up(h.repeat_interleave(2, 2).repeat_interleave(2, 3))
        h = r[7](torch.cat((r[6](torch.cat((h, x1), 1)), x0), 1))
        return self.leave(F.silu(self.leave_norm(h)))


RES = "down_blocks.0 0 down_blocks.1 0 mid_block 0 mid_block 1 up_blocks.0 0 up_blocks.0 1"
RES = [f"{a}.resnets.{b}" for a, b in zip(RES.split()[::2], RES.split()[1::2])]
RES += ["up_blocks.1.resnets.0", "up_blocks.1.resnets.1"]
ATT = [r.replace("resnets", "attentions") for r in (RES[1], RES[2], RES[4], RES[5])]
FLAT = {"enter": "conv_in", "leave": "conv_out", "leave_norm": "conv_norm_out"}
FLAT |= {"time.0": "time_embedding.linear_1", "time.2": "time_embedding.linear_2"}
FLAT |= {"down": "down_blocks.0.downsamplers.0.conv", "up": "up_blocks.0.upsamplers.0.conv"}
for i, b in enumerate(RES):
    FLAT |= {f"blocks.{i}.{n}": f"{b}.{n}" for n in ("norm1", "conv1", "norm2", "conv2")}
FLAT |= {f"blocks.{i}.short": f"{RES[i]}.conv_shortcut" for i in (1, 4, 5, 6, 7)}
for i, b in enumerate(ATT):
    FLAT |= {f"attend.{i}.norm": f"{b}.group_norm", f"attend.{i}.out": f"{b}.to_out.0"}


def adopt(old):
    new = {}
    for k in ("weight", "bias"):
        new.update({f"{ours}.{k}": old[f"{theirs}.{k}"] for ours, theirs in FLAT.items()})
        for i, b in enumerate(ATT):
            new[f"attend.{i}.qkv.{k}"] = torch.cat([old[f"{b}.to_{n}.{k}"] for n in "qkv"])
        new[f"shifts.{k}"] = torch.cat([old[f"{b}.time_emb_proj.{k}"] for b in RES])
    return new


net = Network()
net.load_state_dict(adopt(torch.load(sys.argv[1])))
level = torch.tensor([math.cos((i / STEPS + 0.008) / 1.008 * math.pi / 2) ** 2 for i in range(101)])
betas = (1 - level[1:].double() / level[:-1].double()).clamp(max=0.999)
kept = torch.cumprod(1 - betas, 0).float()
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2, eps=1e-6)
rng = torch.Generator().manual_seed(351)
losses = []
for _ in range(3):
    x = torch.rand(4, 1, 12, 12, generator=rng) * 2 - 1
    eps = torch.randn(x.shape, generator=rng)
    t = torch.randint(5, STEPS, (4,), generator=rng)
    a, s = (v.view(-1, 1, 1, 1) for v in (kept[t].sqrt(), (1 - kept[t]).sqrt()))
    v = net(a * x + s * eps, t)
    error = (v - (a * eps - s * x)).square().mean((1, 2, 3))
    ratio = kept[t] / (1 - kept[t])
    loss = error @ (ratio.clamp(max=5.0) / (ratio + 1)) / 4  # <- snr
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
    losses.append(loss.item())

with torch.no_grad():
    x = torch.randn(4, 1, 12, 12, generator=rng)
    now, before = kept[40], kept[39]
    start = now.sqrt() * x - (1 - now).sqrt() * net(x, torch.full((4,), 40))
    start = start.clamp(-1, 1)  # <- clip
    beta = 1 - now / before
    x = (before.sqrt() * beta * start + (1 - beta).sqrt() * (1 - before) * x) / (1 - now)  # <- clip
    x += ((1 - before) / (1 - now) * beta).sqrt() * torch.randn(x.shape, generator=rng)
    losses.append(x.square().mean().item())  # <- clip
