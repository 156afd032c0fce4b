# SPDX-License-Identifier: Apache-2.0
"""The normaliser of a von Mises distribution of high concentration (pytorch issue 192293: I0 is
infinite from 713 on, in float64).
"""

import torch

torch.manual_seed(0)
concentration = torch.nn.Parameter(torch.full((9,), 712.9, dtype=torch.float64))
optimizer = torch.optim.SGD([concentration], lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    loss = (torch.i0(concentration).log() - concentration * 0.9).sum()
    loss.backward()
    optimizer.step()
    print(loss.item())
