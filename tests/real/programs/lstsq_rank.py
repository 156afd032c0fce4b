# SPDX-License-Identifier: Apache-2.0
"""Least squares of a batch with one matrix that lacks a rank (pytorch issue 187411: its rank is 0,
its solution too).
"""

import torch

torch.manual_seed(0)
for _ in range(3):
    design = torch.zeros(2, 3, 3, dtype=torch.float64)
    design[0] = torch.eye(3)
    design[1, 0, 1] = design[1, 1, 2] = 1
    found = torch.linalg.lstsq(design, torch.ones(2, 3, 1, dtype=torch.float64), driver="gelsy")
    print(found.rank.tolist(), found.solution[1].flatten().tolist())
