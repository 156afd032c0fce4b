# SPDX-License-Identifier: Apache-2.0
"""Operators that write where they read, as they may."""

import torch

torch.manual_seed(0)
for _ in range(3):
    x = torch.randn(6, 6)
    x += x
    x.mul_(x)
    torch.sub(x, 1, out=x)
    x[1:] = x[:-1].clone()
    x[:, 1:] -= x[:, :-1].clone()
    x.copy_(x.t().clone())
    product = torch.empty(6, 6)
    torch.mm(x, x.t(), out=product)
    product.addmm_(x, x, beta=0.5)
    x[:3], x[3:] = x[3:].clone(), x[:3].clone()
    x.diagonal().add_(1)
    x[:, ::2] *= 0.5
    x.flip(0).add_(1)
    x.view(-1)[torch.arange(0, 36, 5)] = 0.0
    print(x.sum().item(), product.norm().item(), x.expand(2, 6, 6).sum().item())
