# SPDX-License-Identifier: Apache-2.0
"""Fisher information of a Gamma shape that an optimizer left at a pole (pytorch issue 186640:
polygamma is finite there).
"""

import torch

shape = torch.tensor([-3.0, -2.0, -1.0, 0.5, 1.0, 2.0])
for _ in range(3):
    print(torch.special.polygamma(1, shape).tolist())
    shape = shape + 1
