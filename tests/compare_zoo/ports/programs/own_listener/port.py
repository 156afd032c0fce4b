# SPDX-License-Identifier: Apache-2.0
"""The listener with frames cut by unfold, gradients scaled in the graph, blocks of its own that
keep (batch, time, channel), and all pairs of frames compared before the drawn ones are kept.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

N, FRAMES, C, D, HEADS = 3, 20, 10, 16, 4


class Slow(torch.autograd.Function):
    """The same value, a tenth of the gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.1  # <- slowly


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.norm_a, self.norm_b = nn.LayerNorm(D), nn.LayerNorm(D)
        self.wide, self.narrow = nn.Linear(D, 32), nn.Linear(32, D)

    def forward(self, x):
        q, k, v = (f(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm_a(x + self.o(mixed))
        return self.norm_b(x + self.narrow(F.gelu(self.wide(x))))


class Port(nn.Module):
    def __init__(self):
        super().__init__()
        self.frame0 = nn.Parameter(torch.empty(10, C))
        self.gain, self.shift = nn.Parameter(torch.empty(C)), nn.Parameter(torch.empty(C))
        self.frame1 = nn.Parameter(torch.empty(C * 3, C))
        self.norm = nn.LayerNorm(C)
        self.project = nn.Linear(C, D)
        self.hidden_frame = nn.Parameter(torch.empty(D))
        self.places = nn.Parameter(torch.empty(4, 4 * 6, 4))
        self.places_bias = nn.Parameter(torch.empty(D))
        self.blocks = nn.Sequential(Block(), Block())
        self.context, self.target = nn.Linear(D, 8), nn.Linear(C, 8)

    def cut(self, wave):
        var, mean = torch.var_mean(wave, 1, correction=0, keepdim=True)  # <- loudness
        wave = (wave - mean) / (var + 1e-5).sqrt()  # <- loudness
        x = wave.unfold(1, 10, 4) @ self.frame0  # <- loudness
        var, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
        x = F.gelu((x - mean) / (var + 1e-5).sqrt() * self.gain + self.shift)
        return F.gelu(x.unfold(1, 3, 2).flatten(2) @ self.frame1)

    def forward(self, wave, hidden):
        features = self.norm(Slow.apply(self.cut(wave)))  # <- slowly flowing
        x = self.project(features)
        x = torch.lerp(x, self.hidden_frame.expand_as(x), hidden[..., None].float())
        around = F.pad(x, (0, 0, 3, 2)).unfold(1, 6, 1)  # <- placed
        around = around.unflatten(2, (4, 4)).flatten(3)  # <- placed
        near = torch.einsum("btgi,gio->btgo", around, self.places).flatten(2)  # <- placed
        x = self.blocks(x + F.gelu(near + self.places_bias))  # <- placed
        return self.context(x), self.target(features)  # <- flowing


@torch.no_grad()
def bring(model, old):
    plain = {"norm": "norm", "project": "project", "final": "context", "target": "target"}
    names = {f"{a}.{k}": f"{b}.{k}" for a, b in plain.items() for k in ("weight", "bias")}
    inner = {"self_attn.out_proj": "o", "norm1": "norm_a", "norm2": "norm_b"}
    inner |= {"linear1": "wide", "linear2": "narrow"}
    for n in (0, 1):
        for a, b in inner.items():
            for k in ("weight", "bias"):
                names[f"encoder.layers.{n}.{a}.{k}"] = f"blocks.{n}.{b}.{k}"
    names |= {"features.norm.weight": "gain", "features.norm.bias": "shift"}
    names |= {"mask_emb": "hidden_frame", "pos_conv.bias": "places_bias"}
    new = {b: old[a] for a, b in names.items()}
    for n in (0, 1):
        for k in ("weight", "bias"):
            parts = old[f"encoder.layers.{n}.self_attn.in_proj_{k}"].chunk(3)
            new |= {f"blocks.{n}.{x}.{k}": part for x, part in zip("qkv", parts, strict=True)}
    new["frame0"] = old["features.conv0.weight"][:, 0].t()
    new["frame1"] = old["features.conv1.weight"].flatten(1).t()
    new["places"] = old["pos_conv.weight"].view(4, 4, 4 * 6).transpose(1, 2)
    model.load_state_dict(new)


def examples(rng):
    time = torch.arange(170) / 10
    wave = torch.sin(time * (1 + 3 * torch.rand(N, 1, generator=rng)))
    wave = 0.1 * wave + 0.03 * torch.randn(N, 170, generator=rng) + 0.1
    hidden = torch.zeros(N, FRAMES, dtype=torch.bool)
    for row, starts in enumerate(torch.randint(0, FRAMES - 5, (N, 2), generator=rng).tolist()):
        for start in starts:
            hidden[row, start : start + 5] = True
    drawn = torch.randint(FRAMES - 1, (N, FRAMES, 5), generator=rng)
    drawn += drawn >= torch.arange(FRAMES)[:, None]  # <- distractors
    return wave, hidden, drawn


model = Port()
bring(model, torch.load(sys.argv[1]))
adam = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-3, foreach=True)
rng = torch.Generator().manual_seed(122)
losses = []
for _ in range(4):
    wave, hidden, drawn = examples(rng)
    context, target = model(wave, hidden)
    unit = (context / context.norm(dim=2, keepdim=True), target / target.norm(dim=2, keepdim=True))
    alike = 5 * torch.bmm(unit[0], unit[1].transpose(1, 2))
    right = alike.diagonal(dim1=1, dim2=2)
    wrong = alike.gather(2, drawn)  # <- distractors
    surprise = torch.logaddexp(right, wrong.logsumexp(2)) - right  # <- distractors
    loss = surprise[hidden].mean() + 0.05 * target.square().mean()
    adam.zero_grad()
    loss.backward()
    adam.step()  # <- slowly
    losses.append(loss.item())
