# SPDX-License-Identifier: Apache-2.0
"""A hand-written normalisation whose backward divides by a spread that can be zero."""

import torch
from torch import nn


class Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        spread = x.amax(1, keepdim=True) - x.amin(1, keepdim=True)
        ctx.save_for_backward(spread)
        return x / spread.clamp(min=1e-3)

    @staticmethod
    def backward(ctx, grad):
        (spread,) = ctx.saved_tensors
        return grad / spread  # <- origin


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(Spread.apply(self.inner(x)))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(6, 4)
    if step == 2:
        with torch.no_grad():
            model.inner.weight.fill_(0.25)
            model.inner.bias.fill_(0.5)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
