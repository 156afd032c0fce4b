# SPDX-License-Identifier: Apache-2.0
"""A normalisation of readings in a large unit (pytorch issue 162489: the variance overflows within,
and with it the result).
"""

import torch
from torch import nn

torch.manual_seed(0)
norm = nn.LayerNorm(32)
with torch.no_grad():
    for _ in range(3):
        print(norm(torch.randn(4, 32) * 1e25).std().item())
