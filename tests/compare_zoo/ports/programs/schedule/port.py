# SPDX-License-Identifier: Apache-2.0
"""The same with the update and the schedule by hand, over one list of tensors."""

import math
import sys

import numpy as np
import torch

old = torch.load(sys.argv[1])
weights = [
    old[f"{i}.{kind}"].clone().requires_grad_() for i in (0, 2, 4) for kind in ("weight", "bias")
]
velocity = [torch.zeros_like(one) for one in weights]


def predict(x):
    w1, b1, w2, b2, w3, b3 = weights
    return torch.tanh(torch.tanh(x @ w1.T + b1) @ w2.T + b2) @ w3.T + b3


rng = np.random.default_rng(24)
losses = []
for step in range(5):
    x = torch.from_numpy(rng.standard_normal((8, 10), dtype=np.float32))
    y = torch.from_numpy(rng.standard_normal((8, 1), dtype=np.float32))
    loss = ((predict(x) - y) ** 2).mean()
    gradients = torch.autograd.grad(loss, weights)
    lr = 0.1 * (step + 1) / 2 if step < 2 else 0.05 * (1 + math.cos(math.pi * (step - 2) / 4))
    with torch.no_grad():
        for w, v, g in zip(weights, velocity, gradients):
            g = g + 0.01 * w  # noqa: PLW2901  # <- decoupled bias
            v.mul_(0.9).add_(g)  # <- dampened
            w -= lr * (g + 0.9 * v)  # noqa: PLW2901  # <- nesterov decoupled warmup bias
    losses.append(loss.item())
