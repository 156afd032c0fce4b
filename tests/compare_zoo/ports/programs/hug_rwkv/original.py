# SPDX-License-Identifier: Apache-2.0
"""A small RWKV-4 in closed form: all pairs of times at once, shifts as interpolation, own rates for
the decays; inputs and targets are cut beforehand.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, LAYERS, LENGTH, BATCH, STEPS = 40, 20, 2, 7, 4, 4


def shift(x):
    return F.pad(x, (0, 0, 1, -1))


class TimeMix(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay = nn.Parameter(torch.linspace(-3, 1, DIM))
        self.bonus = nn.Parameter(0.5 * torch.randn(DIM))
        self.mu_k, self.mu_v, self.mu_r = (nn.Parameter(torch.rand(DIM)) for _ in range(3))
        self.k, self.v, self.r, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x):
        last = shift(x)
        k = self.k(torch.lerp(x, last, self.mu_k))  # <- mixed
        v = self.v(torch.lerp(x, last, self.mu_v))  # <- mixed
        r = self.r(torch.lerp(x, last, self.mu_r)).sigmoid()  # <- mixed
        now, then = torch.arange(LENGTH)[:, None, None], torch.arange(LENGTH)[None, :, None]
        power = torch.where(now == then, self.bonus, -(now - then - 1) * self.decay.exp())
        power = power.masked_fill(then > now, -torch.inf)
        weights = (power + k[:, None]).softmax(dim=2)
        return self.o(r * (weights * v[:, None]).sum(2))


class ChannelMix(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu_k, self.mu_r = (nn.Parameter(torch.rand(DIM)) for _ in range(2))
        self.k, self.v = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(3 * DIM, DIM, bias=False)
        self.r = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        last = shift(x)
        k = self.k(torch.lerp(x, last, self.mu_k))  # <- mixed
        r = self.r(torch.lerp(x, last, self.mu_r)).sigmoid()  # <- mixed
        return r * self.v(k.relu() ** 2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.att, self.ffn = TimeMix(), ChannelMix()

    def forward(self, x):
        x = x + self.att(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class RWKV(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.ln0, self.ln_out = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.ln0(self.emb(tokens))  # <- first_norm
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_out(x))


torch.manual_seed(390)
model = RWKV()
with torch.no_grad():
    model.ln0.weight.uniform_(0.5, 1.5)
    model.ln0.bias.normal_(0.0, 0.2)
torch.save(model.state_dict(), sys.argv[1])
fast = [p for n, p in model.named_parameters() if n.endswith((".decay", ".bonus"))]
slow = [p for n, p in model.named_parameters() if not n.endswith((".decay", ".bonus"))]
groups = [{"params": slow, "lr": 8e-3}, {"params": fast, "lr": 4e-2}]  # <- rates
optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99), eps=1e-4)  # <- rates
starts = [group["lr"] for group in optimizer.param_groups]
generator = torch.Generator().manual_seed(391)
losses = []
for step in range(STEPS):
    for group, start in zip(optimizer.param_groups, starts):
        group["lr"] = start * 0.1 ** (step / STEPS)  # <- schedule
    text = torch.randint(VOCAB, (BATCH, LENGTH + 1), generator=generator)
    x, y = text[:, :-1], text[:, 1:]  # <- shifted_twice
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())  # <- shifted_twice
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rates schedule
    losses.append(loss.item())
