# SPDX-License-Identifier: Apache-2.0
"""Gradients of a bias per head gathered in half precision (pytorch issue 156173: additions to one
place stop at 2048).
"""

import torch

torch.manual_seed(0)
heads = torch.arange(4).view(1, 4, 1).expand(2, 4, 4096)
for _ in range(3):
    gathered = torch.zeros(4, dtype=torch.float16)
    gathered.index_put_((heads,), torch.rand(2, 4, 4096).half(), accumulate=True)
    print(gathered.tolist())
