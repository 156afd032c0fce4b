# SPDX-License-Identifier: Apache-2.0
"""Rows without variance, a batch of two, groups of one channel."""

import torch
from torch import nn

torch.manual_seed(0)
for _ in range(3):
    flat = torch.full((4, 8), 3.7)
    flat[1] += 1e-6 * torch.randn(8)
    print(nn.functional.layer_norm(flat, (8,)).abs().max().item())
    print(nn.functional.normalize(1e-9 * torch.randn(4, 8)).norm().item())
    print(nn.BatchNorm1d(8)(torch.randn(2, 8) * 1e-4 + 5).std().item())
    print(nn.functional.group_norm(torch.randn(2, 8, 3) + 50, 8).std().item())
    print(nn.functional.cosine_similarity(flat, flat + 1e-7).tolist())
