# SPDX-License-Identifier: Apache-2.0
"""Gates whose logarithm a policy needs (pytorch issue 187806: GELU loses every digit, then all,
where its argument is about -5).
"""

import torch
from torch import nn

torch.manual_seed(0)
gate = nn.Linear(8, 64)
with torch.no_grad():
    gate.bias.fill_(-5.5)
    for _ in range(4):
        print((-nn.functional.gelu(gate(0.1 * torch.randn(16, 8)))).log().mean().item())
