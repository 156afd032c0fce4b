# SPDX-License-Identifier: Apache-2.0
"""A library of layers, version 2."""

import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True).clamp(min=self.eps)) * self.weight
