# SPDX-License-Identifier: Apache-2.0
"""A two-layer LSTM that reads sequences of unequal length and predicts a value at every valid step."""

import sys

import numpy as np
import torch
from torch import nn

INPUTS, HIDDEN, LENGTH, BATCH = 6, 24, 10, 6


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(INPUTS, HIDDEN, num_layers=2, batch_first=True)
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, x):
        hidden, _ = self.encoder(x)  # <- gate_order one_bias
        return self.head(self.norm(hidden)).squeeze(-1)


torch.manual_seed(31)
model = Forecaster()
np.savez(sys.argv[1], **{name: p.detach().numpy() for name, p in model.named_parameters()})

optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)  # <- accumulator
criterion = nn.SmoothL1Loss(reduction="none", beta=0.5)  # <- beta
random = np.random.RandomState(32)
losses = []
for _ in range(4):
    x = torch.from_numpy(random.randn(BATCH, LENGTH, INPUTS).astype(np.float32))
    y = torch.from_numpy((0.7 * random.randn(BATCH, LENGTH)).astype(np.float32))
    lengths = torch.from_numpy(random.randint(3, LENGTH + 1, (BATCH,)))
    valid = (torch.arange(LENGTH) < lengths[:, None]).float()
    each = criterion(model(x), y)  # <- beta
    loss = (each * valid).sum() / valid.sum()  # <- mean_valid
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- accumulator one_bias
    losses.append(loss.item())
print(losses)
