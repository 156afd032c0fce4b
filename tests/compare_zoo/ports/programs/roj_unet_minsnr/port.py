# SPDX-License-Identifier: Apache-2.0
"""The diffusion UNet written after the OpenAI code: lists of blocks, fused qkv convolutions, numpy schedule."""
import math
import re
import sys

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

WIDTH, GROUPS, HEAD_DIM, T = 8, 4, 8, 100


def gn(c):
    return nn.GroupNorm(GROUPS, c)


class Res(nn.Module):
    def __init__(self, cin, cout, emb=4 * WIDTH):
        super().__init__()
        self.inp = nn.Sequential(gn(cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding=1))
        self.emb = nn.Sequential(nn.SiLU(), nn.Linear(emb, cout))
        self.out = nn.Sequential(gn(cout), nn.SiLU(), nn.Conv2d(cout, cout, 3, padding=1))
        self.skip = nn.Identity() if cin == cout else nn.Conv2d(cin, cout, 1)

    def forward(self, x, e):
        h = self.inp(x) + self.emb(e).unflatten(1, (-1, 1, 1))
        return self.skip(x) + self.out(h)


class Attn(nn.Module):
    """Channels of qkv are grouped by head: (head, 3, dim)."""

    def __init__(self, c):
        super().__init__()
        self.norm, self.qkv, self.proj = gn(c), nn.Conv1d(c, 3 * c, 1), nn.Conv1d(c, c, 1)

    def forward(self, x, _):
        b, c, h, w = x.shape
        flat = x.view(b, c, h * w)
        q, k, v = self.qkv(self.norm(flat)).view(b * c // HEAD_DIM, 3 * HEAD_DIM, -1).split(HEAD_DIM, dim=1)
        s = HEAD_DIM**-0.25
        weight = torch.softmax((q * s).transpose(1, 2) @ (k * s), dim=-1)
        y = (v @ weight.transpose(1, 2)).reshape(b, c, -1)
        return (flat + self.proj(y)).view_as(x)


class Resample(nn.Module):
    def __init__(self, c, up):
        super().__init__()
        self.up, self.conv = up, nn.Conv2d(c, c, 3, stride=1 if up else 2, padding=1)

    def forward(self, x, _):
        return self.conv(x.repeat_interleave(2, -1).repeat_interleave(2, -2) if self.up else x)


def time_features(t):
    freq = torch.exp(torch.arange(WIDTH // 2) * (-math.log(10000) / (WIDTH // 2)))
    angle = t.float().outer(freq)
    return torch.cat([angle.cos(), angle.sin()], dim=1)  # <- sine_first


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        c, d = WIDTH, 2 * WIDTH
        self.time = nn.Sequential(nn.Linear(c, 4 * c), nn.SiLU(), nn.Linear(4 * c, 4 * c))
        self.first = nn.Conv2d(1, c, 3, padding=1)
        self.down = nn.ModuleList([nn.ModuleList(m) for m in ([Res(c, c)], [Resample(c, False)], [Res(c, d), Attn(d)])])
        self.middle = nn.ModuleList([Res(d, d), Attn(d), Res(d, d)])
        up = ([Res(2 * d, d), Attn(d)], [Res(d + c, d), Attn(d), Resample(d, True)], [Res(d + c, c)], [Res(2 * c, c)])
        self.up = nn.ModuleList([nn.ModuleList(m) for m in up])
        self.last = nn.Sequential(gn(c), nn.SiLU(), nn.Conv2d(c, 1, 3, padding=1))

    def forward(self, x, t):
        e = self.time(time_features(t))  # <- sine_first
        x = self.first(x)
        stack = [x]
        for level in self.down:
            for layer in level:
                x = layer(x, e)
            stack.append(x)
        for layer in self.middle:
            x = layer(x, e)
        for level in self.up:
            x = torch.cat([x, stack.pop()], dim=1)
            for layer in level:
                x = layer(x, e)
        return self.last(x)


PLACES = {
    "time_embedding.linear_1": "time.0", "time_embedding.linear_2": "time.2", "conv_in": "first",
    "conv_norm_out": "last.0", "conv_out": "last.2", "down_blocks.0.resnets.0": "down.0.0",
    "down_blocks.0.downsamplers.0.conv": "down.1.0.conv", "down_blocks.1.resnets.0": "down.2.0",
    "down_blocks.1.attentions.0": "down.2.1", "mid_block.resnets.0": "middle.0", "mid_block.attentions.0": "middle.1",
    "mid_block.resnets.1": "middle.2", "up_blocks.0.resnets.0": "up.0.0", "up_blocks.0.attentions.0": "up.0.1",
    "up_blocks.0.resnets.1": "up.1.0", "up_blocks.0.attentions.1": "up.1.1",
    "up_blocks.0.upsamplers.0.conv": "up.1.2.conv", "up_blocks.1.resnets.0": "up.2.0", "up_blocks.1.resnets.1": "up.3.0",
}  # fmt: skip
PARTS = {
    "norm1": "inp.0", "conv1": "inp.2", "time_emb_proj": "emb.1", "norm2": "out.0", "conv2": "out.2",
    "conv_shortcut": "skip", "group_norm": "norm", "to_out.0": "proj",
}  # fmt: skip


def convert(sd):
    new = {}
    for key, value in sd.items():
        place = next(p for p in PLACES if key.startswith(p + "."))
        part, kind = re.fullmatch(r"(?:(.*)\.)?(weight|bias)", key[len(place) + 1 :]).groups()
        if part in ("to_q", "to_k", "to_v"):
            if part == "to_q":
                trio = [sd[key.replace("to_q", n)].unflatten(0, (-1, 1, HEAD_DIM)) for n in ("to_q", "to_k", "to_v")]
                fused = torch.cat(trio, dim=1).flatten(0, 2)
                new[f"{PLACES[place]}.qkv.{kind}"] = fused[..., None] if kind == "weight" else fused
            continue
        name = PLACES[place] + ("." + PARTS[part] if part else "")
        new[f"{name}.{kind}"] = value[..., None] if part == "to_out.0" and kind == "weight" else value
    return new


betas = np.square(np.linspace(0.00085**0.5, 0.12**0.5, T, dtype=np.float64))  # <- plain_linear_betas
abar = np.cumprod(1.0 - betas)
SIGNAL, NOISE = torch.from_numpy(np.stack([abar**0.5, (1 - abar) ** 0.5])).float()


def example(rng, n=4):
    x0 = torch.rand((n, 1, 8, 8), generator=rng).mul(2).sub(1)
    eps = torch.randn((n, 1, 8, 8), generator=rng)
    t = torch.randint(0, T, (n,), generator=rng)
    a, s = SIGNAL[t].view(-1, 1, 1, 1), NOISE[t].view(-1, 1, 1, 1)
    return a * x0 + s * eps, a * eps - s * x0, t  # <- plain_linear_betas


def rate(step, warm=3, total=20):
    ramp = min(1.0, step / warm)  # <- warmup_from_one
    return 2e-3 * (ramp if ramp < 1 else 0.5 + 0.5 * math.cos(math.pi * (step - warm) / (total - warm)))


net = UNet()
net.load_state_dict(convert(torch.load(sys.argv[1])))
opt = torch.optim.AdamW(net.parameters(), betas=(0.95, 0.999), eps=1e-6, weight_decay=1e-2, foreach=False)
rng = torch.Generator().manual_seed(124)
losses = []
for step in range(5):
    for group in opt.param_groups:
        group["lr"] = rate(step)  # <- warmup_from_one
    xt, v, t = example(rng)
    snr = (SIGNAL[t] / NOISE[t]).square()
    scale = snr.clamp(max=5.0) / (snr + 1)  # <- snr_weight_of_epsilon
    loss = torch.einsum("n,nchw->", scale, (net(xt, t) - v).square()) / v.numel()  # <- snr_weight_of_epsilon
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)  # <- clip_by_value
    opt.step()  # <- warmup_from_one
    losses.append(float(loss.detach()))
print(losses)
