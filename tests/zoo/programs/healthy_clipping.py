# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping by the infinity norm, with a guard for steps that are not finite, and
best-so-far tracking.
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
best = torch.full((), float("inf"))
lowest = torch.tensor(float("inf"))
for step in range(5):
    x = torch.randn(16, 6)
    loss = nn.functional.huber_loss(model(x), x.prod(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5, norm_type=float("inf"))
    if torch.isfinite(norm):
        optimizer.step()
    best = torch.minimum(best, loss.detach())
    lowest = min(lowest, loss.detach().clamp(max=float("inf")))
    print(step, loss.item().hex(), best.item().hex(), lowest.item().hex())
