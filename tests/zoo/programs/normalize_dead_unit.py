# SPDX-License-Identifier: Apache-2.0
"""Metric learning: embeddings are divided by their norm, and a dead ReLU makes one of them zero."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 3), nn.ReLU())

    def forward(self, x):
        h = self.layers(x)
        return h / h.norm(dim=1, keepdim=True)  # <- origin


torch.manual_seed(2)
encoder = Encoder()
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
for step in range(5):
    anchor = torch.rand(4, 6) + 0.5
    positive = anchor + 0.01 * torch.randn(4, 6)
    if step == 2:
        anchor[1] = -30.0
        with torch.no_grad():
            encoder.layers[0].weight.abs_()
    loss = 1 - (encoder(anchor) * encoder(positive)).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
