# SPDX-License-Identifier: Apache-2.0
"""The same speech model with fused projections and scaled_dot_product_attention, frames first and
convolutions as products over windows; the loss is a masked mean, AdamW works on one flat vector.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BANDS, STEPS, DIM, HEADS, DEPTH, WORDS, LENGTH, ITEMS = 8, 20, 16, 4, 2, 27, 7, 4


def heads(x):
    return x.unflatten(-1, (HEADS, DIM // HEADS)).transpose(1, 2)


class FusedAttention(nn.Module):
    """Attention of x to a memory with a projection for q and one for k and v."""

    def __init__(self, *, causal=False):
        super().__init__()
        self.causal = causal
        self.to_q, self.to_kv = nn.Linear(DIM, DIM), nn.Linear(DIM, 2 * DIM)
        self.merge = nn.Linear(DIM, DIM)

    def forward(self, x, memory):
        k, v = self.to_kv(memory).chunk(2, dim=-1)  # <- halves
        attended = F.scaled_dot_product_attention(  # <- halves causal crossed
            heads(self.to_q(x)), heads(k), heads(v), is_causal=self.causal
        )
        return self.merge(attended.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.widen, self.narrow = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        h = self.widen(x)
        h = 0.5 * h * (1 + torch.erf(h / math.sqrt(2)))
        return self.narrow(h)


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention, self.feed = FusedAttention(), FeedForward()

    def forward(self, x):
        normed = self.norm1(x)
        x = x + self.attention(normed, normed)
        return x + self.feed(self.norm2(x))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(DIM) for _ in range(3))
        self.attention, self.cross = FusedAttention(causal=True), FusedAttention()
        self.feed = FeedForward()

    def forward(self, x, memory):
        normed = self.norm1(x)
        x = x + self.attention(normed, normed)
        normed = self.norm2(x)
        x = x + self.cross(normed, memory)
        return x + self.feed(self.norm3(x))


class WindowedConv(nn.Module):
    def __init__(self, inputs, stride):
        super().__init__()
        self.stride = stride
        self.weight = nn.Parameter(torch.zeros(3 * inputs, DIM))
        self.bias = nn.Parameter(torch.zeros(DIM))

    def forward(self, x):
        padded = F.pad(x, (0, 0, 1, 1))
        windows = padded.unfold(1, 3, self.stride).flatten(2)
        return torch.addmm(self.bias, windows.flatten(0, 1), self.weight).unflatten(
            0, windows.shape[:2]
        )


def position_table(length):
    half = DIM // 2
    rates = 10000.0 ** (-torch.arange(half) / (half - 1))  # <- timescale
    angles = torch.outer(torch.arange(length).float(), rates)  # <- timescale
    return torch.cat([angles.sin(), angles.cos()], dim=-1)  # <- timescale


class SpeechToText(nn.Module):
    def __init__(self):
        super().__init__()
        self.front1, self.front2 = WindowedConv(BANDS, 1), WindowedConv(DIM, 2)
        self.encoder = nn.ModuleList(EncoderLayer() for _ in range(DEPTH))
        self.encoder_norm = nn.LayerNorm(DIM)
        self.words, self.places = nn.Embedding(WORDS, DIM), nn.Embedding(LENGTH, DIM)
        self.decoder = nn.ModuleList(DecoderLayer() for _ in range(DEPTH))
        self.decoder_norm = nn.LayerNorm(DIM)

    def encode(self, frames):
        x = F.gelu(self.front1(frames))
        x = F.gelu(self.front2(x))  # <- activated
        x = x + position_table(x.shape[1])  # <- timescale activated
        for layer in self.encoder:
            x = layer(x)
        return self.encoder_norm(x)

    def forward(self, frames, tokens):
        memory = self.encode(frames)
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.decoder:
            x = layer(x, memory)
        return F.linear(self.decoder_norm(x), self.words.weight)


def attention_of(old, theirs, mine):
    key, value = old[theirs + ".key.weight"], old[theirs + ".value.weight"]
    shift = old[theirs + ".value.bias"]
    return {
        mine + ".to_q.weight": old[theirs + ".query.weight"],
        mine + ".to_q.bias": old[theirs + ".query.bias"],
        mine + ".to_kv.weight": torch.cat([key, value]),  # <- halves
        mine + ".to_kv.bias": torch.cat([torch.zeros(DIM), shift]),
        mine + ".merge.weight": old[theirs + ".out.weight"],
        mine + ".merge.bias": old[theirs + ".out.bias"],
    }


def state_of(old):
    new = {}
    renamed = {"encoder_norm": "encoder.ln_post", "decoder_norm": "decoder.ln"}
    for side, norms in (("encoder", "attn mlp"), ("decoder", "attn cross_attn mlp")):
        for i in range(DEPTH):
            mine, theirs = f"{side}.{i}.", f"{side}.blocks.{i}."
            for number, norm in enumerate(norms.split(), start=1):
                renamed[f"{mine}norm{number}"] = f"{theirs}{norm}_ln"
            renamed[mine + "feed.widen"] = theirs + "mlp.0"
            renamed[mine + "feed.narrow"] = theirs + "mlp.2"
            new |= attention_of(old, theirs + "attn", mine + "attention")
            if side == "decoder":
                new |= attention_of(old, theirs + "cross_attn", mine + "cross")
    for mine, theirs in renamed.items():
        new |= {f"{mine}.{kind}": old[f"{theirs}.{kind}"] for kind in ("weight", "bias")}
    for i in (1, 2):
        new[f"front{i}.weight"] = old[f"encoder.conv{i}.weight"].flatten(1).T
        new[f"front{i}.bias"] = old[f"encoder.conv{i}.bias"]
    new["words.weight"] = old["decoder.token_embedding.weight"]
    new["places.weight"] = old["decoder.positional_embedding"]
    return new


def features(power):
    """Frames first, in tens of decibels, cut 8 below the loudest of each recording."""
    levels = np.log10(np.maximum(power, 1e-10))  # <- logs
    levels = np.maximum(levels, levels.max(axis=(1, 2), keepdims=True) - 8)
    return torch.tensor((levels + 4) / 4).transpose(1, 2)  # <- logs


def masked_loss(logits, targets, lengths):
    losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    counted = (torch.arange(LENGTH) < lengths[:, None]).float()
    return (losses * counted).sum() / counted.sum()  # <- padded


class FlatAdamW:
    def __init__(self, parameters, rate=3e-3, decay=0.1):
        self.parameters, self.rate, self.decay, self.steps = parameters, rate, decay, 0
        size = sum(p.numel() for p in parameters)
        self.mean, self.square = torch.zeros(size), torch.zeros(size)

    @torch.no_grad()
    def apply(self, gradients):
        self.steps += 1
        g = torch.cat([gradient.flatten() for gradient in gradients])
        g = g * (1.0 / (g.norm() + 1e-6)).clamp(max=1.0)
        w = torch.cat([p.flatten() for p in self.parameters])
        self.mean = torch.lerp(self.mean, g, 0.1)
        self.square = torch.lerp(self.square, g * g, 0.02)
        mean = self.mean / (1 - 0.9**self.steps)  # <- moments
        root = (self.square / (1 - 0.98**self.steps)).sqrt() + 1e-6  # <- moments
        w = w * (1 - self.rate * self.decay) - self.rate * mean / root  # <- moments
        for p, part in zip(self.parameters, w.split([p.numel() for p in self.parameters])):
            p.copy_(part.view_as(p))


net = SpeechToText()
net.load_state_dict(state_of(torch.load(sys.argv[1])))
parameters = list(net.parameters())
optimizer = FlatAdamW(parameters)
rng = np.random.default_rng(31)
losses = []
for _ in range(3):
    power = rng.gamma(0.3, 1.0, (ITEMS, BANDS, STEPS)).astype(np.float32)
    words = torch.tensor(rng.integers(0, WORDS, (ITEMS, LENGTH + 1)))
    lengths = torch.tensor(rng.integers(3, LENGTH + 1, ITEMS))
    loss = masked_loss(net(features(power), words[:, :-1]), words[:, 1:], lengths)
    optimizer.apply(torch.autograd.grad(loss, parameters))
    losses.append(loss.item())
