# SPDX-License-Identifier: Apache-2.0
"""Exponential moving average of the weights, corrected by 1 - decay**0."""

import torch
from torch import nn


class Average:
    def __init__(self, model, decay):
        self.decay, self.count = decay, 0
        self.sums = [torch.zeros_like(p) for p in model.parameters()]

    @torch.no_grad()
    def weights(self):
        correction = torch.tensor(1 - self.decay**self.count)
        return [total / correction for total in self.sums]  # <- origin

    @torch.no_grad()
    def update(self, model):
        self.count += 1
        for total, parameter in zip(self.sums, model.parameters()):
            total.mul_(self.decay).add_(parameter, alpha=1 - self.decay)


torch.manual_seed(0)
model = nn.Linear(4, 1)
average = Average(model, 0.9)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    drift = sum((a - p).abs().sum() for a, p in zip(average.weights(), model.parameters()))
    loss = model(torch.randn(8, 4)).square().mean() + 1e-3 * drift
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(model)
    print(step, loss.item().hex())
