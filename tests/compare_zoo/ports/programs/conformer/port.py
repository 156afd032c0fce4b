# SPDX-License-Identifier: Apache-2.0
"""The same Conformer with time before channels: convolutions as products over windows, distances
gathered instead of shifted, the forward algorithm of CTC written out.
"""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as fn

BINS, WIDTH, N_HEADS, TAPS, SYMBOLS, DEPTH = 10, 12, 2, 5, 7, 2
HEAD = WIDTH // N_HEADS
NEVER = -1e30


def zeros(*shape):
    return nn.Parameter(torch.zeros(*shape))


class HalfStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        h = self.up(self.norm(x))
        return self.down(h * h.sigmoid())


class RelativeAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.position = zeros(WIDTH, N_HEADS, HEAD)
        self.content_bias, self.position_bias = zeros(N_HEADS, HEAD), zeros(N_HEADS, HEAD)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, table):
        batch, time, _ = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, time, 3, N_HEADS, HEAD)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        places = torch.einsum("pi,ihd->phd", table, self.position)
        content = torch.einsum("bqhd,bkhd->bhqk", q + self.content_bias, k)
        by_place = torch.einsum("bqhd,phd->bhqp", q + self.position_bias, places)  # <- second
        steps = torch.arange(time)
        ahead = steps[None, :] - steps[:, None] + time - 1  # <- distance
        placed = by_place.gather(-1, ahead.expand(batch, N_HEADS, -1, -1))  # <- distance
        weights = fn.softmax((content + placed) * HEAD**-0.5, dim=-1)
        read = torch.einsum("bhqk,bkhd->bqhd", weights, v)
        return self.out(read.flatten(2))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.taps, self.tap_bias = zeros(TAPS, WIDTH), zeros(WIDTH)
        self.gain, self.shift = zeros(WIDTH), zeros(WIDTH)

    def forward(self, x):
        value, gate = self.into(self.norm(x)).chunk(2, dim=-1)
        x = value * gate.sigmoid()
        padded = fn.pad(x, (0, 0, TAPS // 2, TAPS // 2))  # <- centred
        windows = padded.unfold(1, TAPS, 1)  # <- centred
        x = torch.einsum("btck,kc->btc", windows, self.taps) + self.tap_bias  # <- centred
        mean = x.mean((0, 1))  # <- statistics
        variance = x.var((0, 1), unbiased=False)  # <- statistics
        x = (x - mean) * torch.rsqrt(variance + 1e-5) * self.gain + self.shift  # <- statistics
        return self.out(x * x.sigmoid())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = HalfStep(), HalfStep()
        self.attention, self.convolution = RelativeAttention(), Convolution()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x, table):
        x = x + self.before(x) / 2
        x = x + self.attention(x, table)
        x = x + self.convolution(x)
        x = x + self.after(x) / 2  # <- step
        return self.norm(x)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3 * BINS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, frames):
        windows = fn.pad(frames, (0, 0, 1, 1)).unfold(1, 3, 2)
        x = self.stem(windows.flatten(2)).clamp(min=0)
        table = sines(x.shape[1])
        for block in self.blocks:
            x = block(x, table)
        return self.head(x).log_softmax(-1)


def sines(time):
    """Row p holds the distance time - 1 - p of a query from its key."""
    distance = time - 1.0 - torch.arange(2 * time - 1)
    angle = distance[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def ctc(log_probs, spoken):
    """Minus the log likelihood of one utterance: the forward algorithm over blanks and labels."""
    labels = torch.zeros(2 * len(spoken) + 1, dtype=torch.long)
    labels[1::2] = spoken
    skips = torch.full((len(labels),), NEVER)
    may_skip = (labels[2:] != 0) & (labels[2:] != labels[:-2])  # <- repeats
    skips[2:][may_skip] = 0.0  # <- repeats
    alpha = torch.full((len(labels),), NEVER)
    alpha = torch.cat([log_probs[0, labels[:2]], alpha[2:]])
    for frame in log_probs[1:]:
        one = fn.pad(alpha, (1, 0), value=NEVER)[:-1]
        two = fn.pad(alpha, (2, 0), value=NEVER)[:-2] + skips  # <- repeats
        alpha = torch.stack([alpha, one, two]).logsumexp(0) + frame[labels]  # <- repeats
    return -torch.logsumexp(alpha[-2:], 0)


def mapped(old):
    new = {
        "stem.weight": old["subsampling.weight"].flatten(1),
        "stem.bias": old["subsampling.bias"],
        "head.weight": old["fc.weight"],
        "head.bias": old["fc.bias"],
    }
    modules = {
        "before.norm": "feed_forward1.layer_norm",
        "before.up": "feed_forward1.linear1",
        "before.down": "feed_forward1.linear2",
        "after.norm": "feed_forward2.layer_norm",
        "after.up": "feed_forward2.linear1",
        "after.down": "feed_forward2.linear2",
        "attention.norm": "attention.layer_norm",
        "attention.out": "attention.linear_out",
        "convolution.norm": "convolution.layer_norm",
        "convolution.into": "convolution.pointwise_conv1",
        "convolution.out": "convolution.pointwise_conv2",
        "norm": "layer_norm",
    }
    for n in range(DEPTH):
        to, of = f"blocks.{n}.", f"blocks.{n}."
        for mine, theirs in modules.items():
            weight = old[f"{of}{theirs}.weight"]
            new[f"{to}{mine}.weight"] = weight.squeeze(-1) if weight.dim() == 3 else weight
            new[f"{to}{mine}.bias"] = old[f"{of}{theirs}.bias"]
        for kind in ("weight", "bias"):
            parts = [old[f"{of}attention.linear_{part}.{kind}"] for part in "qkv"]
            new[f"{to}attention.qkv.{kind}"] = torch.cat(parts)
        position = old[f"{of}attention.linear_pos.weight"]
        new[f"{to}attention.position"] = position.T.reshape(WIDTH, N_HEADS, HEAD)
        new[f"{to}attention.content_bias"] = old[f"{of}attention.pos_bias_u"]
        new[f"{to}attention.position_bias"] = old[f"{of}attention.pos_bias_v"]
        new[f"{to}convolution.taps"] = old[f"{of}convolution.depthwise_conv.weight"][:, 0].T
        new[f"{to}convolution.tap_bias"] = old[f"{of}convolution.depthwise_conv.bias"]
        new[f"{to}convolution.gain"] = old[f"{of}convolution.norm.weight"]
        new[f"{to}convolution.shift"] = old[f"{of}convolution.norm.bias"]
    return new


def clip(gradients, most):
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradients))
    return [g * min(1.0, most / (norm + 1e-6)) for g in gradients]


net = Recogniser()
net.load_state_dict(mapped(torch.load(sys.argv[1])))
weights = list(net.parameters())
adam = torch.optim.Adam(weights, lr=0.003, betas=(0.9, 0.98), weight_decay=1e-3)
rng = np.random.default_rng(59)
losses = []
for _ in range(3):
    energy = rng.gamma(1.0, size=(3, 24, BINS)).astype(np.float32)
    frames = torch.log(torch.tensor(energy) + 1e-3)
    centred = frames - frames.mean(1, keepdim=True)
    frames = centred / (centred.square().sum(1, keepdim=True) / 23).sqrt()  # <- spread
    texts = torch.tensor(rng.integers(1, SYMBOLS, (3, 4)))
    spoken = [text[:length] for text, length in zip(texts, (4, 3, 2))]
    pairs = zip(net(frames), spoken)
    each = [ctc(scores, text) / len(text) for scores, text in pairs]  # <- lengths
    loss = sum(each) / len(each)  # <- lengths
    gradients = clip(torch.autograd.grad(loss, weights), 1.0)
    for weight, gradient in zip(weights, gradients):
        weight.grad = gradient
    adam.step()
    losses.append(loss.item())
