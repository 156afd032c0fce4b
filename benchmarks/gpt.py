# SPDX-License-Identifier: Apache-2.0
"""The training step that the benchmarks time: a GPT of 6 blocks, width 256, batch 8 x 128, plain
PyTorch.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5
        weights = F.softmax(scores.masked_fill(mask[:length, :length], float("-inf")), dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln1(x), mask)
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class GPT(nn.Module):
    def __init__(
        self,
        vocabulary: int = 256,
        width: int = 256,
        blocks: int = 6,
        heads: int = 8,
        length: int = 128,
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


class Training:
    """A model, its optimizer and its data, those of this GPT where none are given; `step` runs one
    training step and returns the loss.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        inputs: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> None:
        torch.manual_seed(0)
        self.model = GPT() if model is None else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        words = torch.randint(0, 256, (8, 129))
        self.inputs = words[:, :-1] if inputs is None else inputs
        self.labels = words[:, 1:] if labels is None else labels

    def step(self) -> torch.Tensor:
        scores = self.model(self.inputs)
        loss = F.cross_entropy(scores.flatten(0, -2), self.labels.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()
