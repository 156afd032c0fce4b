# SPDX-License-Identifier: Apache-2.0
"""Precision weighting 1 / sigma: forward stays finite, its gradient -1 / sigma^2 does not."""

import torch

torch.manual_seed(0)
sigma = torch.nn.Parameter(torch.tensor([1.0, 0.5, 1e-21]))
mean = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([sigma, mean], lr=1e-3)
for step in range(3):
    data = torch.randn(16, 3)
    weight = 1.0 / sigma  # <- origin
    loss = ((data - mean).square().mean(0) * weight).clamp(max=1e24).sum() * 1e-20
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
