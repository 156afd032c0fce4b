# SPDX-License-Identifier: Apache-2.0
"""Adagrad on float16 weights: the squared gradients leave float16, and learning stops without a
word.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1).half()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(64, 8).half()
    target = x.sum(1, keepdim=True)
    scale = 30.0 if step < 2 else 3000.0
    loss = ((model(x) - target).float().abs() * scale).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- origin
    print(step, loss.item().hex())
