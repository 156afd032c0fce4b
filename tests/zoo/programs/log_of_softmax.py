# SPDX-License-Identifier: Apache-2.0
"""Classifier that takes the logarithm of its softmax by hand."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=30.0)
x = torch.randn(64, 10)
y = torch.randint(4, (64,))
for step in range(6):
    p = F.softmax(model(x), dim=1)
    logp = torch.log(p)  # <- origin
    loss = F.nll_loss(logp, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
