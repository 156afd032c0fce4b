# SPDX-License-Identifier: Apache-2.0
"""Group normalisation of pictures around 100 in channels_last (the variance of E[x^2] - E[x]^2
loses its digits).
"""

import torch
from torch import nn

torch.manual_seed(0)
norm = nn.GroupNorm(4, 32)
shift = nn.Parameter(torch.full((1, 32, 1, 1), 100.0))
optimizer = torch.optim.SGD([*norm.parameters(), shift], lr=0.1)
pictures = torch.randn(2, 32, 16, 16).contiguous(memory_format=torch.channels_last)
for _ in range(3):
    optimizer.zero_grad()
    loss = (norm(pictures + shift) - 0.5).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
