# SPDX-License-Identifier: Apache-2.0
"""bfloat16 autocast with dropout, layer norm and a frozen layer."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(8, 32), nn.LayerNorm(32), nn.SiLU(), nn.Dropout(0.5), nn.Linear(32, 4)
)
model[0].requires_grad_(False)
optimizer = torch.optim.AdamW(
    [p for p in model.parameters() if p.requires_grad], lr=1e-3, amsgrad=True
)
for step in range(4):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(4, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
