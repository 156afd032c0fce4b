# SPDX-License-Identifier: Apache-2.0
"""Rosenbrock by LBFGS with a strong Wolfe line search, then logistic regression."""

import torch

point = torch.tensor([-1.2, 1.0], requires_grad=True)
optimizer = torch.optim.LBFGS([point], max_iter=10, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    x, y = point
    loss = (1 - x) ** 2 + 100 * (y - x * x) ** 2
    loss.backward()
    return loss


for step in range(4):
    print(step, optimizer.step(closure).item().hex())
