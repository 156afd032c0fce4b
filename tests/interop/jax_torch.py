# SPDX-License-Identifier: Apache-2.0
"""The nets of jax_nets.py as torch has them, trained alike: python jax_torch.py FOLDER NET[-forward]..."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from jax_weights import CLASSES, WIDTH, WORDS, batches, weights
from torch import nn
from torch.nn import functional

import opscope


def filled(linear: Any, tree: dict[str, Any]) -> Any:
    """A layer with a kernel's numbers."""
    kernel = tree["kernel"]
    axes = (1, 0) if kernel.ndim == 2 else (3, 2, 0, 1)
    linear.weight.data = torch.tensor(np.ascontiguousarray(kernel.transpose(axes)))
    if "bias" in tree:
        linear.bias.data = torch.tensor(tree["bias"])
    return linear


def normed(norm: Any, tree: dict[str, Any]) -> Any:
    norm.weight.data, norm.bias.data = torch.tensor(tree["scale"]), torch.tensor(tree["bias"])
    return norm


def dense(tree: dict[str, Any]) -> nn.Linear:
    return filled(nn.Linear(*tree["kernel"].shape), tree)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(dense(tree) for tree in weights("mlp").values())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, last = self.layers
        return last(functional.relu(second(torch.tanh(first(x)))))


class Block(nn.Module):
    def __init__(self, tree: dict[str, Any]) -> None:
        super().__init__()
        self.before, self.after = (
            normed(nn.LayerNorm(WIDTH), tree[name]) for name in ("before", "after")
        )
        for name in ("query", "key", "value", "out", "up", "down"):
            self.add_module(name, dense(tree[name]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = self.before(x)
        query, key, value = (
            layer(given).unflatten(-1, (2, WIDTH // 2)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.after(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        tree = weights("gpt")
        self.words = nn.Embedding.from_pretrained(torch.tensor(tree["words"]), freeze=False)
        self.places = nn.Parameter(torch.tensor(tree["places"]))
        self.blocks = nn.Sequential(Block(tree["block0"]), Block(tree["block1"]))
        self.last = normed(nn.LayerNorm(WIDTH), tree["last"])
        self.head = dense(tree["head"])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.blocks(self.words(ids) + self.places)))


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        tree = weights("conv")
        self.layers = nn.Sequential()
        for i, (given, made) in enumerate(((3, 8), (8, WIDTH))):
            conv = nn.Conv2d(given, made, 3, padding=1, bias=False)
            norm = normed(nn.BatchNorm2d(made), tree[f"norm{i}"])
            self.layers.extend([filled(conv, tree[f"conv{i}"]), norm, nn.ReLU(), nn.MaxPool2d(2)])
        self.head = dense(tree["head"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x.permute(0, 3, 1, 2)).mean((2, 3)))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        tree = weights("lstm")
        self.words = nn.Embedding.from_pretrained(torch.tensor(tree["words"]), freeze=False)
        cell = tree["cell"]
        self.given = nn.Parameter(torch.tensor(cell["given"]))
        self.held = nn.Parameter(torch.tensor(cell["held"]))
        self.bias = nn.Parameter(torch.tensor(cell["bias"]))
        self.head = dense(tree["head"])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = cell = torch.zeros(len(ids), WIDTH)
        for x in self.words(ids).unbind(1):
            gates = x @ self.given + hidden @ self.held + self.bias
            enter, forget, made, leave = gates.chunk(4, -1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(made)
            hidden = torch.sigmoid(leave) * torch.tanh(cell)
        return self.head(hidden)


NETS = {"mlp": Mlp, "gpt": Gpt, "conv": Conv, "lstm": Lstm}


def optimizer(net: str, model: nn.Module) -> Any:
    if net == "mlp":
        return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    if net == "gpt":
        return torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.1)
    if net == "conv":
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return torch.optim.Adam(model.parameters(), 1e-2)


def judged(run: str, net: str) -> None:
    """Forward passes alone."""
    model = NETS[net]()
    with opscope.record(run), torch.no_grad():
        for x, _ in batches(net):
            print(float(model(torch.tensor(x)).sum()))


def main(run: str, net: str) -> None:
    torch.manual_seed(0)
    model = NETS[net]()
    update = optimizer(net, model)
    classes = WORDS if net == "gpt" else CLASSES
    with opscope.record(run):
        for x, labels in batches(net):
            update.zero_grad()
            logits = model(torch.tensor(x)).reshape(-1, classes)
            loss = functional.cross_entropy(logits, torch.tensor(labels).long().reshape(-1))
            loss.backward()
            update.step()
            print(float(loss.detach()))
            if net == "mlp":
                for group in update.param_groups:
                    group["lr"] *= 0.5


if __name__ == "__main__":
    for word in sys.argv[2:]:
        name, _, forward = word.partition("-")
        (judged if forward else main)(f"{sys.argv[1]}/{word}", name)
