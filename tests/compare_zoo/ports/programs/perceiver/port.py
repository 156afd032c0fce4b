# SPDX-License-Identifier: Apache-2.0
"""The same Perceiver with three-axis kernels a head, keys and values apart, layer norms and gelu
from their formulas, positions computed in numpy, decoupled weight decay by hand.
"""

import sys

import numpy as np
import torch
from torch import nn

HEAD = 8


def array(*shape):
    return nn.Parameter(torch.empty(shape))


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale, self.offset = array(size), array(size)

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)  # <- residual
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.scale + self.offset


class Reader(nn.Module):
    """What is read may be the latents themselves (self attention) or the input (cross)."""

    def __init__(self, width, heads, source=None):
        super().__init__()
        self.query_norm = Norm(width)
        self.source_norm = Norm(source) if source else None
        self.query = array(width, heads, HEAD)
        self.key = array(source or width, heads, HEAD)
        self.value = array(source or width, heads, HEAD)
        self.merge, self.merge_bias = array(heads, HEAD, width), array(width)

    def forward(self, latents, source=None):
        z = self.query_norm(latents)
        source = z if source is None else self.source_norm(source)  # <- context
        q = torch.einsum("bld,dhe->bhle", z, self.query) / HEAD**0.5  # <- scale
        k = torch.einsum("bmd,dhe->bhme", source, self.key)  # <- swapped context
        v = torch.einsum("bmd,dhe->bhme", source, self.value)  # <- swapped context
        weights = torch.softmax(torch.einsum("bhle,bhme->bhlm", q, k), dim=-1)  # <- scale
        read = torch.einsum("bhlm,bhme->bhle", weights, v)
        return torch.einsum("bhle,hed->bld", read, self.merge) + self.merge_bias


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))  # <- gelu


class GatedMLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = Norm(width)
        self.plain, self.plain_bias = array(width, 2 * width), array(2 * width)
        self.gate, self.gate_bias = array(width, 2 * width), array(2 * width)
        self.down, self.down_bias = array(2 * width, width), array(width)

    def forward(self, latents):
        z = self.norm(latents)
        linear = z @ self.plain + self.plain_bias
        gates = z @ self.gate + self.gate_bias
        return (linear * gelu(gates)) @ self.down + self.down_bias  # <- halves gelu


class LatentModel(nn.Module):
    def __init__(self, width=24, inputs=21, classes=6):
        super().__init__()
        self.start = array(10, width)
        self.read, self.digest = Reader(width, 1, inputs), GatedMLP(width)
        self.talk, self.think = Reader(width, 4), GatedMLP(width)
        self.norm, self.out, self.out_bias = Norm(width), array(width, classes), array(classes)

    def forward(self, tokens):
        z = self.start.unsqueeze(0).repeat(len(tokens), 1, 1)
        for _ in range(2):
            z = z + self.read(z, tokens)
            z = z + self.digest(z)
            z = z + self.talk(z)  # <- residual
            z = z + self.think(z)
        return self.norm(z.sum(1) / z.shape[1]) @ self.out + self.out_bias


def fourier_features(side=8, bands=4, highest=8.0):
    where = np.linspace(-1, 1, side)
    frequency = np.linspace(1, highest / 2, bands) * np.pi  # <- bands
    row = [np.sin(where[:, None] * frequency), np.cos(where[:, None] * frequency), where[:, None]]
    each = np.concatenate(row, axis=1).astype(np.float32)  # <- bands
    both = [np.repeat(each, side, axis=0), np.tile(each, (side, 1))]
    return torch.tensor(np.concatenate(both, axis=1))  # <- bands


def remapped(old):
    new = {"start": old["latents"]}

    def norm(mine, theirs):
        new[f"{mine}.scale"], new[f"{mine}.offset"] = old[f"{theirs}.weight"], old[f"{theirs}.bias"]

    def reader(mine, theirs, heads):
        norm(f"{mine}.query_norm", f"{theirs}.norm")
        if f"{theirs}.norm_context.weight" in old:
            norm(f"{mine}.source_norm", f"{theirs}.norm_context")
        key, value = old[f"{theirs}.fn.to_kv.weight"].chunk(2)  # <- swapped
        parts = {"query": old[f"{theirs}.fn.to_q.weight"], "key": key, "value": value}
        for name, part in parts.items():
            new[f"{mine}.{name}"] = part.T.reshape(-1, heads, HEAD)
        new[f"{mine}.merge"] = old[f"{theirs}.fn.to_out.weight"].T.reshape(heads, HEAD, -1)
        new[f"{mine}.merge_bias"] = old[f"{theirs}.fn.to_out.bias"]

    def mlp(mine, theirs):
        norm(f"{mine}.norm", f"{theirs}.norm")
        plain, gate = old[f"{theirs}.fn.net.0.weight"].chunk(2)
        new[f"{mine}.plain"], new[f"{mine}.gate"] = plain.T, gate.T
        plain, gate = old[f"{theirs}.fn.net.0.bias"].chunk(2)
        new[f"{mine}.plain_bias"], new[f"{mine}.gate_bias"] = plain, gate
        new[f"{mine}.down"] = old[f"{theirs}.fn.net.2.weight"].T
        new[f"{mine}.down_bias"] = old[f"{theirs}.fn.net.2.bias"]

    reader("read", "cross_attn", 1)
    mlp("digest", "cross_ff")
    reader("talk", "self_attn", 4)
    mlp("think", "self_ff")
    norm("norm", "norm")
    new["out"], new["out_bias"] = old["to_logits.weight"].T, old["to_logits.bias"]
    return new


class Decoupled:
    """Adam whose decay shrinks the weights apart from the moments."""

    def __init__(self, parameters, rate, decay):
        self.parameters, self.rate, self.decay, self.t = list(parameters), rate, decay, 0
        self.m = [torch.zeros_like(p) for p in self.parameters]
        self.v = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def update(self, gradients):
        self.t += 1
        for p, g, m, v in zip(self.parameters, gradients, self.m, self.v):
            m.copy_(0.9 * m + 0.1 * g)
            v.copy_(0.999 * v + 0.001 * g * g)
            step = (m / (1 - 0.9**self.t)) / ((v / (1 - 0.999**self.t)).sqrt() + 1e-8)
            p.copy_(p - self.rate * (step + self.decay * p))  # <- decay


rng = np.random.default_rng(51)
images = torch.tensor(rng.standard_normal((3, 8, 8, 8, 3), dtype=np.float32)).flatten(2, 3)
targets = torch.tensor(rng.integers(0, 6, (3, 8)))
positions = fourier_features().expand(8, -1, -1)
net = LatentModel()
net.load_state_dict(remapped(torch.load(sys.argv[1])))
optimiser = Decoupled(net.parameters(), rate=4e-3, decay=0.1)
losses = []
for pixels, answer in zip(images, targets):
    scores = net(torch.cat([pixels, positions], dim=2))
    loss = (scores.logsumexp(1) - scores.gather(1, answer[:, None])[:, 0]).mean()
    optimiser.update(torch.autograd.grad(loss, optimiser.parameters))
    losses.append(loss.item())
