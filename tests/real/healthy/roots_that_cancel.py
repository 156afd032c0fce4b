# SPDX-License-Identifier: Apache-2.0
"""The small root of a quadratic by the school's formula, and exp(x) - 1 of tiny x."""

import torch

torch.manual_seed(0)
for _ in range(3):
    b = 1e3 + torch.rand(41)
    root = (-b + torch.sqrt(b * b - 4e-3)) / 2
    tiny = torch.rand(41) * 1e-6
    print(
        root.mean().item(), (torch.exp(tiny) - 1).mean().item(), (1 - torch.cos(tiny)).sum().item()
    )
