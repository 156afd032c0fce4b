# SPDX-License-Identifier: Apache-2.0
"""The same with channels first, tokens mixed by Conv1d and einsum, patches cut by hand."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

P, C, T = 4, 16, 9


def norm(x, weight, bias, eps=1e-5):
    """x: batch, channels, tokens."""
    mean = x.mean(1, keepdim=True)
    x = x - mean
    x = x / torch.sqrt((x * x).mean(1, keepdim=True) + eps)  # <- eps
    return x * weight[:, None] + bias[:, None]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.g1, self.b1, self.g2, self.b2 = (nn.Parameter(torch.zeros(C)) for _ in range(4))
        self.mix1, self.mix2 = nn.Conv1d(T, 12, 1), nn.Conv1d(12, T, 1)
        self.w1, self.w2 = nn.Parameter(torch.zeros(40, C)), nn.Parameter(torch.zeros(C, 40))
        self.d1, self.d2 = nn.Parameter(torch.zeros(40)), nn.Parameter(torch.zeros(C))

    def forward(self, x):
        y = norm(x, self.g1, self.b1).transpose(1, 2)  # <- eps untransposed
        x = x + self.mix2(F.gelu(self.mix1(y))).transpose(1, 2)  # <- gelu untransposed
        y = norm(x, self.g2, self.b2)  # <- eps skip
        y = F.gelu(torch.einsum("hc,bct->bht", self.w1, y) + self.d1[:, None])  # <- gelu
        return x + torch.einsum("ch,bht->bct", self.w2, y) + self.d2[:, None]  # <- skip


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(3 * P * P, C)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.g, self.b = nn.Parameter(torch.zeros(C)), nn.Parameter(torch.zeros(C))
        self.head = nn.Linear(C, 5)

    def forward(self, x):
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // P, P, w // P, P).permute(0, 2, 4, 1, 3, 5)  # <- patches
        x = self.patch(x.reshape(n, T, -1)).transpose(1, 2)  # <- patches
        for layer in self.layers:
            x = layer(x)
        return self.head(norm(x, self.g, self.b).mean(2))  # <- pooled eps


def carried(old):
    new = {"patch.weight": old["stem.weight"].flatten(1), "patch.bias": old["stem.bias"]}
    new |= {"g": old["norm.weight"], "b": old["norm.bias"]}
    new |= {"head.weight": old["head.weight"], "head.bias": old["head.bias"]}
    for i in range(2):
        a, b = f"layers.{i}.", f"blocks.{i}."
        for j in (1, 2):
            new[f"{a}g{j}"], new[f"{a}b{j}"] = old[f"{b}norm{j}.weight"], old[f"{b}norm{j}.bias"]
            new[f"{a}mix{j}.weight"] = old[f"{b}t{j}.weight"][..., None]
            new[f"{a}mix{j}.bias"] = old[f"{b}t{j}.bias"]
            new[f"{a}w{j}"], new[f"{a}d{j}"] = old[f"{b}c{j}.weight"], old[f"{b}c{j}.bias"]
    return new


net = Net()
net.load_state_dict(carried(torch.load(sys.argv[1])))
adamw = torch.optim.AdamW(net.parameters(), lr=2e-3)
rng = np.random.default_rng(21)
losses = []
for _ in range(2):
    x = torch.from_numpy(rng.standard_normal((4, 3, 12, 12), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 5, 4))
    loss = F.cross_entropy(net(x), y)
    adamw.zero_grad()
    loss.backward()
    adamw.step()
    losses.append(loss.item())
