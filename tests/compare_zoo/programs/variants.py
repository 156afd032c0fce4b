# SPDX-License-Identifier: Apache-2.0
"""Two small trainings; the argument (JSON) says what is changed in them, for good or for ill."""

import json
import math
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

OPTIONS = json.loads(sys.argv[1])
WIDTH, HEADS, LENGTH, BATCH, WORDS = 16, 2, 6, 4, 24


def option(name, default=None):
    return OPTIONS.get(name, default)


class HalfSquare(torch.autograd.Function):
    """x * x / 2 with a derivative of its own."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x * 0.5

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient * x.abs() if option("bad_backward") else gradient * x


class Attention(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.chosen = chosen

    def option(self, name, default=None):
        return option(name, default) if self.chosen else default

    def forward(self, x):
        q, k, v = (
            layer(x).view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        if self.option("swap"):
            q, k = k, q
        if option("fused"):
            causal, scale = not self.option("no_mask"), self.option("scale")
            with torch.nn.attention.sdpa_kernel(
                getattr(torch.nn.attention.SDPBackend, option("fused"))
            ):
                mixed = functional.scaled_dot_product_attention(
                    q, k, v, is_causal=causal, scale=scale
                )
        else:
            mixed = self.written_out(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))

    def written_out(self, q, k, v):
        scores = q @ k.transpose(-1, -2)
        if not self.option("no_scale"):
            scores = scores / math.sqrt(WIDTH / HEADS)
        if not self.option("no_mask"):
            scores = scores.masked_fill(
                ~torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(), float("-inf")
            )
        weights = torch.softmax(scores, dim=self.option("softmax_dim", -1))
        if self.option("detach"):
            weights = weights.detach()
        if self.option("narrow"):
            return (weights.bfloat16() @ v.bfloat16()).float()
        return weights @ v


class Block(nn.Module):
    def __init__(self, chosen):
        super().__init__()
        self.norm1, self.norm2 = (
            nn.LayerNorm(WIDTH),
            nn.LayerNorm(WIDTH, eps=option("eps", 1e-5) if chosen else 1e-5),
        )
        self.attention = Attention(chosen)
        self.up, self.down = (
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Linear(2 * WIDTH, WIDTH, bias=not (chosen and option("no_bias"))),
        )
        self.dropout = nn.Dropout(option("dropout", 0.0))
        self.chosen = chosen

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        hidden = self.up(self.norm2(x))
        if option("own_function"):
            hidden = HalfSquare.apply(hidden)
        elif option("relu"):
            hidden = hidden.relu_() if option("relu") == "in place" else hidden.relu()
        else:
            hidden = getattr(functional, option("activation", "gelu") if self.chosen else "gelu")(
                hidden
            )
        hidden = self.dropout(self.down(hidden))
        return hidden if self.chosen and option("no_residual") else x + hidden


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=option("padding"))
        self.places = nn.Embedding(LENGTH + 2, WIDTH)
        self.blocks = nn.ModuleList(Block(place == 1) for place in range(3))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if not option("untied"):
            self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(LENGTH) + option("offset", 0))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if option("checkpoint") else block(x)
        return self.head(self.norm(x))


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8, momentum=option("momentum", 0.1))
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, groups=option("groups", 1))
        self.norm2 = nn.BatchNorm2d(8)
        self.pool = nn.AvgPool2d(2) if option("average") else nn.MaxPool2d(2)
        self.head = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x):
        x = functional.relu(self.norm1(self.conv1(x)))
        x = x + functional.relu(self.norm2(self.conv2(x)))
        x = self.pool(x).flatten(1)
        return self.head(x.half().float() if option("cast") else x)


def made():
    model = Picture() if option("picture") else Language()
    if "perturbed" in OPTIONS:
        with torch.no_grad():
            model.get_parameter(option("perturbed")).view(-1)[3] += 1e-2
    if option("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    return model.eval() if option("eval") else model


def batch(step):
    generator = torch.Generator().manual_seed(1 + step)
    if option("picture"):
        x, y = (
            torch.randn(BATCH, 3, 8, 8, generator=generator),
            torch.randint(0, 5, (BATCH,), generator=generator),
        )
        return (x.to(memory_format=torch.channels_last) if option("channels_last") else x), y
    ids = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=generator)
    return ids[:, :-1], ids[:, 1:].reshape(-1)


def main():
    torch.manual_seed(0)
    model = made()
    named = {
        "lr": 1e-2,
        **{
            name: OPTIONS[name]
            for name in ("lr", "weight_decay", "betas", "foreach", "fused_kernel", "nesterov")
            if name in OPTIONS
        },
    }
    if "fused_kernel" in named:
        named["fused"] = named.pop("fused_kernel")
    if option("sgd"):
        named["momentum"] = option("sgd")
    optimizer = getattr(torch.optim, "SGD" if option("sgd") else "AdamW")(
        model.parameters(), **named
    )
    called = torch.compile(model, backend=option("compile")) if option("compile") else model
    torch.manual_seed(option("seed", 0))
    for step in range(2):
        x, y = batch(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bool(option("autocast"))):
            out = called(x).reshape(len(y), -1)
            loss = functional.cross_entropy(
                out,
                y,
                reduction=option("reduction", "mean"),
                label_smoothing=option("smoothing", 0.0),
                ignore_index=option("ignored", -100),
            )
        loss.backward()
        if option("clip"):
            nn.utils.clip_grad_norm_(model.parameters(), option("clip"))
        optimizer.step()


main()
