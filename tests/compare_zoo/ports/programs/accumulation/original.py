# SPDX-License-Identifier: Apache-2.0
"""A classifier trained on whole batches, gradients clipped."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(10)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 6))
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
rng = np.random.default_rng(10)
losses = []
for _ in range(3):
    x = torch.from_numpy(rng.standard_normal((8, 16), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 6, 8))
    loss = F.cross_entropy(model(x), y)  # <- undivided gelu eps
    loss.backward()  # <- undivided forgotten
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- norm undivided forgotten
    optimizer.step()  # <- decay forgotten undivided
    optimizer.zero_grad()
    losses.append(loss.item())
