# SPDX-License-Identifier: Apache-2.0
"""Forward algorithm with impossible states (pytorch issue 49724: the gradient of logaddexp is not a
number where both are impossible).
"""

import torch

torch.manual_seed(0)
for _ in range(3):
    scores = torch.randn(8)
    scores[3] = -float("inf")
    scores.requires_grad_()
    other = torch.randn(8)
    other[3] = -float("inf")
    torch.logaddexp(scores, other)[:3].sum().backward()
    print(scores.grad.isnan().sum().item())
