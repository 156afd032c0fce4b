# SPDX-License-Identifier: Apache-2.0
"""Copying task with one unscaled attention layer in float16."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2)  # <- origin
        return scores.softmax(-1) @ self.value(x)


class Model(nn.Module):
    def __init__(self, vocabulary=32, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Attention(width), Attention(width)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


torch.manual_seed(0)
model = Model().half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    tokens = torch.randint(32, (4, 16))
    loss = F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for layer in model.layers:
            layer.query.weight.mul_(6.0)
            layer.key.weight.mul_(6.0)
    print(step, loss.item().hex())
