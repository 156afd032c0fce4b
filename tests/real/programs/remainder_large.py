# SPDX-License-Identifier: Apache-2.0
"""Buckets of hashes held in float32 (pytorch issue 193753: the remainder of large numbers is not a
number in vectors).
"""

import torch

torch.manual_seed(0)
for _ in range(3):
    hashes = 1e37 + torch.rand(40) * 1e38
    print(torch.remainder(hashes, torch.full((40,), 2e-3)).mean().item())
