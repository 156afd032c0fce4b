# SPDX-License-Identifier: Apache-2.0
"""Histograms of activations in half precision (pytorch issue 174668: a bin stops at 2048 or
4096).
"""

import torch

torch.manual_seed(0)
for _ in range(3):
    activations = torch.randn(12000).relu().half()
    print(torch.histc(activations, bins=4, min=-1, max=3).tolist())
