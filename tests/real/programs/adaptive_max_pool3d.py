# SPDX-License-Identifier: Apache-2.0
"""A layer that keeps the places of adaptive pooling in three dimensions in the layout of its input
(pytorch issue 197888: its gradient goes to other elements).
"""

from typing import Any

import torch
from torch import nn


class Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        output, indices = torch.ops.aten.adaptive_max_pool3d(x, [2, 3, 5])
        ctx.save_for_backward(x, indices.contiguous(memory_format=torch.channels_last_3d))
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        x, indices = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        return torch.ops.aten.adaptive_max_pool3d_backward(gradient, x, indices)


torch.manual_seed(0)
layer = nn.Conv3d(4, 4, 3, padding=1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
inputs = torch.randn(2, 4, 8, 10, 6)
for _ in range(3):
    optimizer.zero_grad()
    loss = Pool.apply(layer(inputs)).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
