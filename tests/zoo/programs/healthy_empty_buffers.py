# SPDX-License-Identifier: Apache-2.0
"""Buffers from torch.empty are filled before anyone computes with them; old memory holds NaN on
purpose.
"""

import torch
from torch import nn

torch.manual_seed(0)
torch.utils.deterministic.fill_uninitialized_memory = True
torch.use_deterministic_algorithms(True)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    batch = torch.empty(8, 6)
    batch[:4].copy_(torch.randn(4, 6))
    batch[4:] = torch.rand(4, 6)
    target = torch.empty_like(batch[:, :3]).zero_()
    product = torch.empty(6, 6)
    torch.mm(batch.T, batch, out=product)
    loss = (model(batch) - target).square().mean() + 1e-3 * product.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
