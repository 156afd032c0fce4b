# SPDX-License-Identifier: Apache-2.0
"""A distance of high order, near the maximum (pytorch issue 184036: infinite for every pair)."""

import torch
from torch import nn

torch.manual_seed(0)
distance = nn.PairwiseDistance(p=100)
for _ in range(3):
    print(distance(torch.randn(4, 8) * 3, torch.randn(4, 8)).tolist())
