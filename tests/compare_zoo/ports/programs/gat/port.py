# SPDX-License-Identifier: Apache-2.0
"""The same over a dense matrix of neighbours, heads before nodes."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

N, D, HEADS, SIZE = 9, 6, 3, 4


class Layer(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(HEADS, inside, SIZE))
        self.left, self.right = (nn.Parameter(torch.empty(HEADS, SIZE, 1)) for _ in range(2))

    def forward(self, x, neighbours):
        h = torch.matmul(x, self.weight)
        scores = (h @ self.right) + (h @ self.left).transpose(1, 2)  # <- direction
        scores = F.leaky_relu(scores, negative_slope=0.2)  # <- slope direction
        scores = scores.masked_fill(neighbours == 0, -1e9)  # <- loops direction
        alpha = torch.softmax(scores, dim=-1)  # <- direction loops
        return alpha @ h  # <- direction loops


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(D), Layer(HEADS * SIZE)])
        self.head = nn.Linear(SIZE, 3)

    def forward(self, x, neighbours):
        x = self.layers[0](x, neighbours)
        x = F.elu(x.transpose(0, 1).reshape(N, -1))  # <- elu
        return self.head(self.layers[1](x, neighbours).mean(0))  # <- heads


def carried(old):
    new = {"head.weight": old["out.weight"], "head.bias": old["out.bias"]}
    for i, name in enumerate(("one", "two")):
        weight = old[f"{name}.project.weight"]
        new[f"layers.{i}.weight"] = weight.view(HEADS, SIZE, -1).transpose(1, 2)
        new[f"layers.{i}.left"] = old[f"{name}.source"][..., None]
        new[f"layers.{i}.right"] = old[f"{name}.target"][..., None]
    return new


net = Net()
net.load_state_dict(carried(torch.load(sys.argv[1])))
adam = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=5e-4)
rng = np.random.default_rng(13)
features = torch.from_numpy(rng.standard_normal((N, D), dtype=np.float32))
labels = torch.from_numpy(rng.integers(0, 3, N))
neighbours = torch.zeros(N, N)
for i in range(N):
    for j in range(N):
        if i == j or rng.random() < 0.3:
            neighbours[j, i] = 1  # <- loops
losses = []
for _ in range(3):
    loss = F.cross_entropy(net(features, neighbours), labels)
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
