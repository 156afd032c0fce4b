# SPDX-License-Identifier: Apache-2.0
"""Functions where a rounding of the argument is worth more than the result."""

import torch

torch.manual_seed(0)
for _ in range(3):
    far = 1e6 * (1 + torch.rand(35))
    print(torch.sin(far).mean().item(), torch.tan(torch.full((35,), 1.5707963)).mean().item())
    print(torch.exp(80 + torch.rand(35)).mean().item(), torch.pow(1.0001, far / 50).mean().item())
    print(torch.erfinv(0.999 - 1e-3 * torch.rand(35)).mean().item())
    print(torch.lgamma(1 + 1e-5 * torch.rand(35)).mean().item())
    print(torch.digamma(1.4616321 + 1e-6 * torch.rand(35)).mean().item())
    print(torch.acos(1 - 1e-6 * torch.rand(35)).mean().item())
