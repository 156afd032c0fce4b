# SPDX-License-Identifier: Apache-2.0
"""Powers of a transition matrix in the memory they come from (pytorch issue 85852: the product is
written over what it still reads).
"""

import torch

torch.manual_seed(0)
transition = torch.rand(32, 32).softmax(1)
for _ in range(3):
    torch.mm(transition, transition, out=transition)
    print(transition.sum(1).mean().item())
