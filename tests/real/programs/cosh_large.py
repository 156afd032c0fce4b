# SPDX-License-Identifier: Apache-2.0
"""A log-cosh loss of large residuals (pytorch issue 183765: the vectorised part is infinite, the
rest is right).
"""

import torch

torch.manual_seed(0)
weight = torch.nn.Parameter(torch.tensor(88.9))
features = torch.ones(67)
optimizer = torch.optim.SGD([weight], lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    loss = torch.cosh(weight * features).log().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
