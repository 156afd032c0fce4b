# SPDX-License-Identifier: Apache-2.0
"""Phases of large numbers (pytorch issue 193753: not a number in vectors, right in what is left
over).
"""

import torch

torch.manual_seed(0)
for _ in range(3):
    counts = torch.rand(66) * 1e38
    print(torch.fmod(counts, 1e-3).sum().item())
