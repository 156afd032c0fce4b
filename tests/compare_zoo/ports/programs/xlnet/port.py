# SPDX-License-Identifier: Apache-2.0
"""The same language model, batch first: products with every distance gathered where they belong,
one matrix for query, key and value, norms and Adam written out.
"""

import math
import sys

import numpy as np
import torch
from torch import nn

WORDS, WIDTH, HEADS, INNER, DEPTH = 31, 24, 3, 40, 2
SEGMENT, MEMORY, ROWS = 6, 8, 4


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH))
        self.shift = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)  # <- residual
        deviation = (centred.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        return centred / deviation * self.gain + self.shift


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.distance = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(WIDTH))
        self.distance_bias = nn.Parameter(torch.zeros(WIDTH))
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norm_one, self.norm_two = Norm(), Norm()

    @staticmethod
    def heads(x):
        return x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(-3, -2)

    def attend(self, x, past, waves):
        now, seen = x.shape[1], past.shape[1]
        q, k, v = self.qkv(torch.cat([past, x], dim=1)).chunk(3, dim=-1)  # <- memory
        q = q[:, seen:]
        content = self.heads(q + self.content_bias) @ self.heads(k).mT  # <- bias
        every = self.heads(q + self.distance_bias) @ self.heads(self.distance(waves)).mT  # <- bias
        away = seen + torch.arange(now)[:, None] - torch.arange(seen + now)  # <- shift masked
        index = away.clamp(min=0).expand(len(x), HEADS, -1, -1)  # <- shift
        scores = content + every.gather(3, index)  # <- shift
        scores = scores / math.sqrt(WIDTH // HEADS)  # <- scale
        scores = torch.where(away >= 0, scores, -1e30)  # <- masked
        mixed = torch.softmax(scores, dim=-1) @ self.heads(v)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x, past, waves):
        x = self.norm_one(x + self.attend(x, past, waves))  # <- residual
        return self.norm_two(x + self.down(nn.functional.gelu(self.up(x))))


class SegmentModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(WORDS, WIDTH))
        self.blocks = nn.ModuleList([Block() for _ in range(DEPTH)])
        self.prior = nn.Parameter(torch.zeros(WORDS))

    @staticmethod
    def waves(length):
        """Sinusoids of the distances 0, 1, ..., length - 1."""
        frequency = torch.exp(torch.arange(WIDTH // 2) * (-2 * math.log(10000) / WIDTH))
        angle = torch.arange(length)[:, None] * frequency
        return torch.stack([angle.sin(), angle.cos()], dim=1).flatten(1)  # <- sinusoid

    def forward(self, words, memory):
        x = self.table[words] * WIDTH**0.5
        waves = self.waves(memory[0].shape[1] + words.shape[1])
        kept = []
        for block, past in zip(self.blocks, memory):
            kept.append(torch.cat([past, x.detach()], dim=1)[:, -MEMORY:])  # <- memory
            x = block(x, past, waves)
        return x @ self.table.T + self.prior, kept


def renamed(old):
    new = {"table": old["word_embedding.weight"], "prior": old["lm_bias"]}
    for i in range(DEPTH):
        theirs = {
            name.removeprefix(f"layer.{i}."): value
            for name, value in old.items()
            if name.startswith(f"layer.{i}.")
        }
        flat = {name: theirs[f"rel_attn.{name}"].flatten(1) for name in "qkvor"}
        mine = {
            "qkv.weight": torch.cat([flat["q"], flat["k"], flat["v"]], dim=1).T,
            "distance.weight": flat["r"].T,
            "out.weight": flat["o"],
            "content_bias": theirs["rel_attn.r_w_bias"].flatten(),  # <- bias
            "distance_bias": theirs["rel_attn.r_r_bias"].flatten(),  # <- bias
            "norm_one.gain": theirs["rel_attn.layer_norm.weight"],
            "norm_one.shift": theirs["rel_attn.layer_norm.bias"],
            "norm_two.gain": theirs["ff.layer_norm.weight"],
            "norm_two.shift": theirs["ff.layer_norm.bias"],
        }
        for part, number in (("up", 1), ("down", 2)):
            mine[f"{part}.weight"] = theirs[f"ff.layer_{number}.weight"]
            mine[f"{part}.bias"] = theirs[f"ff.layer_{number}.bias"]
        new |= {f"blocks.{i}.{name}": value for name, value in mine.items()}
    return new


def adam(parameters, state, step, rate):
    with torch.no_grad():
        for p, (first, second) in zip(parameters, state):
            first.mul_(0.9).add_(p.grad, alpha=0.1)
            second.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            scale = math.sqrt(1 - 0.999**step)
            root = second.sqrt() / scale + 1e-8
            p.addcdiv_(first, root, value=-rate / (1 - 0.9**step))  # <- cosine
            p.grad = None


model = SegmentModel()
model.load_state_dict(renamed(torch.load(sys.argv[1])))
parameters = list(model.parameters())
state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
stream = torch.tensor(np.random.default_rng(3).integers(0, WORDS, (3 * SEGMENT + 1, ROWS))).T
memory = [torch.zeros(ROWS, 0, WIDTH)] * DEPTH
losses = []
for step in range(3):
    piece = stream[:, step * SEGMENT : (step + 1) * SEGMENT + 1]
    scores, memory = model(piece[:, :-1], memory)
    chosen = scores.gather(2, piece[:, 1:, None])[..., 0]
    loss = (scores.logsumexp(-1) - chosen).mean()
    loss.backward()
    rate = 0.01 * 0.5 * (1 + math.cos(math.pi * step / 4))  # <- cosine
    adam(parameters, state, step + 1, rate)
    losses.append(loss.item())
