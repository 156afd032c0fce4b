# SPDX-License-Identifier: Apache-2.0
"""A ratio of Bessel functions (pytorch issue 192294: I1 is infinite from 713 on, in float64)."""

import torch

concentration = torch.linspace(712.5, 713.2, 17, dtype=torch.float64)
for _ in range(3):
    ratio = torch.special.i1(concentration) / concentration.exp()
    print(ratio.tolist())
