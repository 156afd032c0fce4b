# SPDX-License-Identifier: Apache-2.0
"""Mamba for a kernel to come: the recurrence as a scan that doubles its reach, an autograd function
with its backward written out, channels last, RMSprop in place.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F


def doubling(decay, drive):
    """Every state of h[t] = decay[t] * h[t-1] + drive[t] along dimension 1."""
    reach, length = 1, decay.shape[1]
    while reach < length:
        drive = torch.cat(
            [drive[:, :reach], drive[:, reach:] + decay[:, reach:] * drive[:, :-reach]], dim=1
        )
        decay = torch.cat([decay[:, :reach], decay[:, reach:] * decay[:, :-reach]], dim=1)
        reach *= 2
    return drive


def later(x):
    return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], dim=1)


def earlier(x):
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)


class Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, decay, drive):
        states = doubling(decay, drive)
        ctx.save_for_backward(decay, states)
        return states

    @staticmethod
    def backward(ctx, grad):
        decay, states = ctx.saved_tensors
        grad = doubling(later(decay).flip(1), grad.flip(1)).flip(1)
        return grad * earlier(states), grad  # <- previous


class RootNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.weight


class Mixer(nn.Module):
    def __init__(self, size=20, inner=40, state=4, rank=3, taps=4):
        super().__init__()
        self.sizes = [rank, state, state]
        self.in_x = nn.Linear(size, inner, bias=False)
        self.in_z = nn.Linear(size, inner, bias=False)
        self.taps = nn.Parameter(torch.empty(taps, inner))
        self.tap_bias = nn.Parameter(torch.empty(inner))
        self.select = nn.Linear(inner, sum(self.sizes), bias=False)
        self.widen = nn.Linear(rank, inner)
        self.log_rate = nn.Parameter(torch.empty(inner, state))
        self.skip = nn.Parameter(torch.empty(inner))
        self.out = nn.Linear(inner, size, bias=False)

    def convolved(self, x):
        padded = F.pad(x, (0, 0, len(self.taps) - 1, 0))  # <- causal
        windows = padded.unfold(1, len(self.taps), 1)  # <- causal
        return F.silu(torch.einsum("btck,kc->btc", windows, self.taps) + self.tap_bias)  # <- causal

    def forward(self, x):
        x, z = self.in_x(x), self.in_z(x)  # <- split
        x = self.convolved(x)
        narrow, drive_by, read_by = self.select(x).split(self.sizes, dim=-1)
        dt = F.softplus(self.widen(narrow))[..., None]  # <- bias
        decay = torch.exp(-dt * self.log_rate.exp())
        states = Scan.apply(decay, dt * x[..., None] * drive_by[:, :, None])  # <- previous
        y = torch.einsum("btcs,bts->btc", states, read_by)
        y = (y + self.skip * x) * F.silu(z)  # <- skip
        return self.out(y)


class Mamba(nn.Module):
    def __init__(self, vocab=33, size=20, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.norms = nn.ModuleList([RootNorm(size) for _ in range(depth + 1)])
        self.mixers = nn.ModuleList([Mixer(size) for _ in range(depth)])
        self.head = nn.Linear(size, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for norm, mixer in zip(self.norms, self.mixers):
            x = x + mixer(norm(x))
        return self.head(self.norms[-1](x))


@torch.no_grad()
def load(model, old):
    model.embed.weight.copy_(old["backbone.embeddings.weight"])
    model.head.weight.copy_(old["lm_head.weight"])
    model.norms[-1].weight.copy_(old["backbone.norm_f.weight"])
    for n, mixer in enumerate(model.mixers):
        at = f"backbone.layers.{n}."
        model.norms[n].weight.copy_(old[at + "norm.weight"])
        half_x, half_z = old[at + "mixer.in_proj.weight"].tensor_split(2)  # <- split
        mixer.in_x.weight.copy_(half_x)  # <- split
        mixer.in_z.weight.copy_(half_z)  # <- split
        mixer.taps.copy_(old[at + "mixer.conv1d.weight"][:, 0].T)
        mixer.tap_bias.copy_(old[at + "mixer.conv1d.bias"])
        mixer.select.weight.copy_(old[at + "mixer.x_proj.weight"])
        mixer.widen.weight.copy_(old[at + "mixer.dt_proj.weight"])
        mixer.widen.bias.copy_(old[at + "mixer.dt_proj.bias"])
        mixer.log_rate.copy_(old[at + "mixer.A_log"])
        mixer.skip.copy_(old[at + "mixer.D"])
        mixer.out.weight.copy_(old[at + "mixer.out_proj.weight"])


@torch.no_grad()
def rmsprop(weights, squares, momenta):
    for w, square, momentum in zip(weights, squares, momenta):
        square.mul_(0.9).addcmul_(w.grad, w.grad, value=0.1)
        momentum.mul_(0.5).add_(w.grad / (square.sqrt() + 1e-3))  # <- root
        w.sub_(momentum, alpha=1e-3)  # <- root
        w.grad = None


mamba = Mamba()
load(mamba, torch.load(sys.argv[1]))
weights = list(mamba.parameters())
squares, momenta = ([torch.zeros_like(w) for w in weights] for _ in range(2))
generator = torch.Generator().manual_seed(81)
losses = []
for _ in range(4):
    ids = torch.randint(0, 33, (3, 11), generator=generator)
    scores = mamba(ids)[:, :-1]
    right = scores.gather(2, ids[:, 1:, None]).squeeze(2)
    loss = (scores.logsumexp(2) - right).mean()
    loss.backward()
    rmsprop(weights, squares, momenta)
    losses.append(loss.item())
