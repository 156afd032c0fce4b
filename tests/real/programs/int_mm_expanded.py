# SPDX-License-Identifier: Apache-2.0
"""A layer quantised by hand that answers one request at a time (pytorch issue 195066: products of
int8 are wrong where the only row has a step of 0).
"""

import torch

torch.manual_seed(0)
weight = torch.randint(-8, 8, (64, 32), dtype=torch.int8)
for _ in range(4):
    token = torch.randint(-8, 8, (64,), dtype=torch.int8)
    row = token.expand(1, 64).as_strided((1, 64), (0, 1))
    print(torch._int_mm(row, weight)[0, :4].tolist())
