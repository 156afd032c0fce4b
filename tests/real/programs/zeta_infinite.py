# SPDX-License-Identifier: Apache-2.0
"""A Zipf likelihood with an unbounded offset (pytorch issue 187294: zeta(2, inf) is not a
number).
"""

import torch

offsets = torch.tensor([1.0, 2.0, 10.0, float("inf")])
exponent = torch.full((4,), 2.0)
for _ in range(3):
    print(torch.special.zeta(exponent, offsets).tolist())
    exponent = exponent + 0.25
