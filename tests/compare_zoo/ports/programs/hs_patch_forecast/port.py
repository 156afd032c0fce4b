# SPDX-License-Identifier: Apache-2.0
"""Channel-at-a-time forecaster: convolution patches, error weighed in the normalised space, schedule by hand."""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

C, L, H, P, S, D, NH, STEPS = 3, 32, 8, 8, 4, 16, 4, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)
        self.gain = nn.Parameter(torch.ones(2, D))
        self.shift = nn.Parameter(torch.zeros(2, D))

    def norm(self, x, i):
        x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.gain[i] + self.shift[i]

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (NH, -1)) for f in (self.q, self.k, self.v))
        att = torch.einsum("bqhd,bkhd->bhqk", q * (D // NH) ** -0.5, k).softmax(-1)
        x = self.norm(x + self.o(torch.einsum("bhqk,bkhd->bqhd", att, v).flatten(2)), 0)
        return self.norm(x + self.down(F.gelu(self.up(x))), 1)


class ChannelForecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv1d(1, D, P, stride=S)
        n = (L - P) // S + 1
        self.pos = nn.Parameter(torch.zeros(n, D))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.out = nn.Conv1d(n, H, D)                 # reads all patches of one window at once
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(2)) for _ in range(C))

    def forward(self, z, channel):                    # z: (B, L), already standardised
        gamma, beta = self.scales[channel]
        h = self.patches(torch.addcmul(beta, z, gamma).unsqueeze(1)).mT + self.pos
        for block in self.blocks:
            h = block(h)
        return (self.out(h).squeeze(-1) - beta) / (gamma + 1e-10)


@torch.no_grad()
def load(net, old):
    net.patches.weight.copy_(old["embed.weight"].unsqueeze(1))
    net.patches.bias.copy_(old["embed.bias"])
    net.pos.copy_(old["position"][0])
    net.out.weight.copy_(old["head.weight"].view(H, -1, D))
    net.out.bias.copy_(old["head.bias"])
    for c, pair in enumerate(net.scales):
        pair.copy_(torch.stack([old["revin.affine_weight"][c], old["revin.affine_bias"][c]]))
    for i, b in enumerate(net.blocks):
        at = f"encoder.layers.{i}."
        for part, w, v in zip((b.q, b.k, b.v), old[at + "self_attn.in_proj_weight"].chunk(3),
                              old[at + "self_attn.in_proj_bias"].chunk(3)):
            part.weight.copy_(w), part.bias.copy_(v)
        for part, name in ((b.o, "self_attn.out_proj"), (b.up, "linear1"), (b.down, "linear2")):
            part.weight.copy_(old[at + name + ".weight"]), part.bias.copy_(old[at + name + ".bias"])
        b.gain.copy_(torch.stack([old[at + f"norm{j}.weight"] for j in (1, 2)]))
        b.shift.copy_(torch.stack([old[at + f"norm{j}.bias"] for j in (1, 2)]))


net = ChannelForecaster()
load(net, torch.load(sys.argv[1]))

rng = torch.Generator().manual_seed(5)
t = torch.arange(200.0)
table = torch.stack([torch.sin(t / 5), 2 + torch.cos(t / 9), 0.02 * t], 1)
table = (table + 0.2 * torch.randn(200, C, generator=rng)).T.contiguous()
windows = table.unfold(1, L + H, 1)                   # (C, 161, L + H)
starts = [torch.randint(0, 200 - L - H, (6,), generator=rng) for _ in range(STEPS)]


def cosine(a, b, f):
    return b + (a - b) / 2 * (1 + math.cos(math.pi * f))


def one_cycle(i, peak=5e-3, rise=0.4):
    turn = rise * STEPS - 1
    if i <= turn:
        return cosine(peak / 25, peak, i / turn), cosine(0.95, 0.85, i / turn)
    f = (i - turn) / (STEPS - 1 - turn)
    return cosine(peak, peak / 25e4, f), cosine(0.85, 0.95, f)


params = list(net.parameters())
opt = torch.optim.AdamW(params, weight_decay=0.05, foreach=True)
losses, history = [], {"lr": [], "norm": [], "smape": []}
for i, rows in enumerate(starts):
    opt.param_groups[0]["lr"], beta1 = one_cycle(i)
    opt.param_groups[0]["betas"] = (beta1, 0.999)
    opt.zero_grad(set_to_none=False)
    whole = 0.0
    for c in range(C):                                # one channel is one micro-batch
        past, future = windows[c, rows].split([L, H], 1)
        var, mean = torch.var_mean(past, 1, keepdim=True, correction=0)
        std = (var + 1e-5).sqrt()
        pred = net((past - mean) / std, c)
        part = (((future - mean) / std - pred).square() * std.square()).sum() / (len(rows) * H * C)
        part.backward()
        whole += part.item()
        with torch.no_grad():
            history["smape"].append(((pred * std + mean - future).abs() / (future.abs() + 1)).mean().item())
    grads = [p.grad for p in params]
    total = torch.stack(torch._foreach_norm(grads)).norm()
    torch._foreach_mul_(grads, (1.0 / (total + 1e-6)).clamp(max=1.0))
    opt.step()
    history["lr"].append(opt.param_groups[0]["lr"])
    history["norm"].append(total.item())
    losses.append(whole)

print(losses)
