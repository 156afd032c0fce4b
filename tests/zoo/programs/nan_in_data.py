# SPDX-License-Identifier: Apache-2.0
"""A sensor table with one missing reading, NaN, in the third batch."""

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)
table = rng.normal(size=(40, 6)).astype(np.float32)
table[21, 4] = np.nan

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    prediction = model(torch.from_numpy(table[step * 10 : step * 10 + 10]))  # <- origin
    loss = (prediction - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
