# SPDX-License-Identifier: Apache-2.0
"""Pixels at or below a threshold that is none (pytorch issue 178716: -19 is compared as 237)."""

import torch

torch.manual_seed(0)
nothing = torch.tensor(-19, dtype=torch.int8)
for _ in range(3):
    image = torch.randint(0, 200, (16, 16), dtype=torch.uint8)
    print(torch.le(image, nothing).float().mean().item())
