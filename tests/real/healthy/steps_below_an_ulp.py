# SPDX-License-Identifier: Apache-2.0
"""bfloat16 parameters whose updates round away, and fused optimizers in float32."""

import torch
from torch import nn

torch.manual_seed(0)
for dtype, kind, options in (
    (torch.bfloat16, torch.optim.SGD, {}),
    (torch.float32, torch.optim.SGD, {"fused": True, "momentum": 0.9}),
    (torch.float32, torch.optim.AdamW, {"fused": True}),
):
    model = nn.Sequential(nn.Linear(7, 19), nn.ReLU(), nn.Linear(19, 1)).to(dtype)
    optimizer = kind(model.parameters(), lr=1e-4, **options)
    for _ in range(3):
        loss = model(torch.randn(16, 7, dtype=dtype)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
