# SPDX-License-Identifier: Apache-2.0
"""Contrast with a queue in the manner of MoCo: a ConvNeXt block, a momentum encoder, LARS."""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, OUT, BATCH, QUEUE, SIZE, MOMENTUM, HEAT = 8, 6, 4, 12, 10, 0.9, 0.2


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.dwconv = nn.Conv2d(WIDTH, WIDTH, 5, padding=2, groups=WIDTH)
        self.norm = LayerNorm2d(WIDTH, eps=1e-6)
        self.pwconv1 = nn.Conv2d(WIDTH, 4 * WIDTH, 1)
        self.pwconv2 = nn.Conv2d(4 * WIDTH, WIDTH, 1)
        self.gamma = nn.Parameter(torch.full((WIDTH,), 0.5))

    def forward(self, x):
        y = self.pwconv2(F.gelu(self.pwconv1(self.norm(self.dwconv(x)))))
        return x + self.gamma[:, None, None] * y


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 2, stride=2)
        self.stem_norm = LayerNorm2d(WIDTH, eps=1e-6)
        self.blocks = nn.Sequential(Block(), Block())
        self.proj = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, OUT))

    def forward(self, x):
        x = self.blocks(self.stem_norm(self.stem(x)))
        return F.normalize(self.proj(x.mean((2, 3))), dim=1)  # <- unit


class LARS(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 1.0, "momentum": 0.9, "trust": 0.02, "decay": 1e-2})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad
                if p.ndim > 1:
                    g = g + group["decay"] * p  # <- trust
                    g = g * (group["trust"] * p.norm() / g.norm())  # <- trust
                mu = self.state[p].setdefault("mu", torch.zeros_like(p))
                mu.mul_(group["momentum"]).add_(g)  # <- trust
                p.add_(mu, alpha=-group["lr"])


torch.manual_seed(211)
encoder_q = Encoder()
with torch.no_grad():
    for p in encoder_q.parameters():
        p.add_(0.1 * torch.randn_like(p))
queue = F.normalize(torch.randn(OUT, QUEUE), dim=0)
torch.save({"queue": queue.clone(), "encoder": encoder_q.state_dict()}, sys.argv[1])

encoder_k = copy.deepcopy(encoder_q).requires_grad_(False)
optimizer = LARS(encoder_q.parameters())
pointer = 0
generator = torch.Generator().manual_seed(212)
losses = []
for _ in range(5):
    images = torch.rand(BATCH, 3, SIZE, SIZE, generator=generator)
    noise = torch.randn(2, BATCH, 3, SIZE, SIZE, generator=generator)
    one, two = images + 0.3 * noise[0], images.flip(3) + 0.3 * noise[1]  # <- turned
    with torch.no_grad():
        for q, k in zip(encoder_q.parameters(), encoder_k.parameters()):
            k.mul_(MOMENTUM).add_(q, alpha=1 - MOMENTUM)  # <- late
        k = encoder_k(two)  # <- late turned
    q = encoder_q(one)
    positive = (q * k).sum(1, keepdim=True)
    negative = q @ queue  # <- written
    logits = torch.cat([positive, negative], 1) / HEAT
    loss = F.cross_entropy(logits, torch.zeros(BATCH, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- trust
    queue = queue.clone()
    queue[:, pointer : pointer + BATCH] = k.T  # <- written
    pointer = (pointer + BATCH) % QUEUE  # <- written
    losses.append(loss.item())
