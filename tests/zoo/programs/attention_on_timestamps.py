# SPDX-License-Identifier: Apache-2.0
"""Nanosecond timestamps fed as a feature into scaled_dot_product_attention, under a loss scale that
nobody bounds; the head is frozen.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q, k, v).squeeze(1)  # <- origin


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention(8)
        self.head = nn.Linear(8, 1).requires_grad_(False)

    def forward(self, x):
        return self.head(self.attention(x)).mean(1)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.attention.parameters(), lr=0.01)
for step in range(3):
    x = torch.randn(2, 6, 8)
    if step > 0:
        x[:, :, 0] = 1.7e18
    loss = model(x).square().mean() if step == 0 else model(x).abs().mean()
    optimizer.zero_grad()
    loss.backward(torch.tensor(1e24 if step else 1.0))
    optimizer.step()
    print(step, loss.item().hex())
