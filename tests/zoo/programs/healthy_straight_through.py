# SPDX-License-Identifier: Apache-2.0
"""Vector quantisation with a straight-through estimator as a custom autograd function."""

import torch
from torch import nn


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid())
decode = nn.Linear(8, 4)
optimizer = torch.optim.Adagrad([*model.parameters(), *decode.parameters()], lr=0.05)
for step in range(4):
    x = torch.randn(8, 4)
    loss = (decode(Round.apply(model(x) * 4) / 4) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
