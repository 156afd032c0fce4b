# SPDX-License-Identifier: Apache-2.0
"""Pixels kept where below 256, so all of them (pytorch issue 101653: 256 is compared as 0)."""

import torch

torch.manual_seed(0)
for _ in range(3):
    image = torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8)
    print((image < 256).float().mean().item())
