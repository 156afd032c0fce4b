# SPDX-License-Identifier: Apache-2.0
"""Scores of which some are infinite by intent (pytorch issue 185770: GELU of infinity is not a
number, through oneDNN).
"""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(8, 33)
with torch.no_grad():
    for _ in range(3):
        scores = layer(torch.randn(4, 8))
        scores[:, 5] = float("inf")
        print(nn.functional.gelu(scores)[:, 5].tolist())
