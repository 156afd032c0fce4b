# SPDX-License-Identifier: Apache-2.0
"""Large embeddings brought to length 1 (pytorch issue 193006: the norm is infinite where only its
square is, so all become 0).
"""

import torch
from torch import nn

torch.manual_seed(0)
table = nn.Embedding(10, 8)
with torch.no_grad():
    table.weight.mul_(1e20)
    for _ in range(3):
        rows = table(torch.randint(0, 10, (4,)))
        print(nn.functional.normalize(rows, dim=-1).abs().sum().item())
