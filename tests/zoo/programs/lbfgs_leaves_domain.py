# SPDX-License-Identifier: Apache-2.0
"""Maximum likelihood with LBFGS: a step without line search makes the rate negative, and its log
NaN.
"""

import torch

torch.manual_seed(0)
counts = torch.poisson(torch.full((50,), 3.0))
rate = torch.nn.Parameter(torch.tensor(10.0))
optimizer = torch.optim.LBFGS([rate], lr=1.0, max_iter=4)


def closure():
    optimizer.zero_grad()
    loss = (rate - counts * torch.log(rate)).mean()  # <- origin
    loss.backward()
    return loss


for step in range(3):
    loss = optimizer.step(closure)
    print(step, loss.item().hex(), rate.item().hex())
