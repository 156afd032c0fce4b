# SPDX-License-Identifier: Apache-2.0
"""A warp that sends some points far out of the picture (pytorch issue 51911: not a number where
padding is asked for).
"""

import torch
from torch import nn

torch.manual_seed(0)
picture = torch.rand(1, 3, 8, 8)
grid = nn.functional.affine_grid(torch.eye(2, 3)[None], [1, 3, 8, 8], align_corners=False).clone()
grid[0, 2, :] = 2.9e38
for _ in range(3):
    print(nn.functional.grid_sample(picture, grid, align_corners=False).sum().item())
    grid = grid * 0.99
