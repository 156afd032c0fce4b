# SPDX-License-Identifier: Apache-2.0
"""Rotations that are learnt through their generators, in bfloat16 (found by check-op: the matrix
exponential of half types is NaN throughout).
"""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Parameter(0.1 * torch.randn(4, 6, 6, dtype=torch.bfloat16))
optimizer = torch.optim.SGD([generator], lr=0.1)
for _ in range(3):
    rotation = torch.linalg.matrix_exp(generator - generator.mT)
    loss = (rotation @ torch.ones(6, dtype=torch.bfloat16)).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
