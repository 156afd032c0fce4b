# SPDX-License-Identifier: Apache-2.0
"""The same with the update added to the weight, once a step, as for merged kernels."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

DIM, R, SCALE = 24, 4, 2.0


class Adapted(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.register_buffer("weight", torch.empty(outside, inside))
        self.register_buffer("bias", torch.empty(outside))
        self.a, self.b = nn.Parameter(torch.empty(R, inside)), nn.Parameter(torch.empty(outside, R))

    def forward(self, x):
        merged = self.weight + SCALE * (self.b @ self.a)  # <- scaling order dropped
        return F.linear(x, merged, self.bias)  # <- scaling bias dropped


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.out = Adapted(DIM, 40), Adapted(40, DIM), nn.Linear(DIM, 6)
        self.register_buffer("gamma", torch.ones(DIM))
        self.register_buffer("beta", torch.zeros(DIM))

    def forward(self, x):
        h = self.down(F.gelu(self.up(x)))  # <- gelu
        x = F.layer_norm(x + h, (DIM,), self.gamma, self.beta, 1e-5)  # <- eps
        return self.out(x.sum(1) / x.shape[1])


def carried(old):
    new = {"out.weight": old["head.weight"], "out.bias": old["head.bias"]}
    new["gamma"], new["beta"] = old["norm.weight"], old["norm.bias"]
    for mine, theirs in (("up", "first"), ("down", "second")):
        new[f"{mine}.weight"], new[f"{mine}.bias"] = (
            old[f"{theirs}.base.weight"],
            old[f"{theirs}.base.bias"],
        )
        new[f"{mine}.a"], new[f"{mine}.b"] = old[f"{theirs}.lora_a"], old[f"{theirs}.lora_b"]
    return new


net = Net()
net.load_state_dict(carried(torch.load(sys.argv[1])))
adamw = torch.optim.AdamW(net.parameters(), lr=1e-2)
rng = np.random.default_rng(9)
losses = []
for _ in range(3):
    x = torch.from_numpy(rng.standard_normal((6, 5, DIM), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 6, 6))
    loss = F.cross_entropy(net(x), y)
    adamw.zero_grad()
    loss.backward()
    adamw.step()
    losses.append(loss.item())
