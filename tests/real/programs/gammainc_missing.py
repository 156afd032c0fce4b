# SPDX-License-Identifier: Apache-2.0
"""p-values of rates of which one is missing (pytorch issue 132614: a number comes out for what is
none).
"""

import torch

torch.manual_seed(0)
for _ in range(3):
    shape = torch.rand(9) + 1
    shape[4] = float("inf")
    rate = torch.rand(9)
    rate[4] = float("nan")
    print(torch.special.gammainc(shape, rate)[4].item())
