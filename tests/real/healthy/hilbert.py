# SPDX-License-Identifier: Apache-2.0
"""Solutions with a matrix whose condition float32 cannot hold."""

import torch

torch.manual_seed(0)
place = torch.arange(9.0)
matrix = 1 / (place[:, None] + place + 1)
for _ in range(3):
    right = torch.randn(9, 2)
    print(torch.linalg.solve(matrix, right).abs().max().item())
    print(torch.linalg.det(matrix).item(), torch.linalg.inv(matrix).abs().max().item())
    print(torch.linalg.matrix_rank(matrix).item(), torch.linalg.pinv(matrix).norm().item())
    print(torch.linalg.lstsq(matrix[:, :4], right).solution.norm().item())
