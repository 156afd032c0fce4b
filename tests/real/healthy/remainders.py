# SPDX-License-Identifier: Apache-2.0
"""Phases, buckets and quotients of ordinary size."""

import torch

torch.manual_seed(0)
for _ in range(3):
    angles = 100 * torch.randn(45)
    print(torch.remainder(angles, 6.2831855).mean().item(), torch.fmod(angles, 0.3).mean().item())
    print(torch.floor_divide(angles, 0.7).mean().item(), torch.frac(angles).mean().item())
    print(torch.round(angles, decimals=1).mean().item(), torch.trunc(angles / 3).sum().item())
    print(torch.quantile(angles, 0.3).item(), torch.histc(angles, 9).tolist())
    print(torch.bucketize(angles, torch.linspace(-99, 99, 12)).float().mean().item())
