# SPDX-License-Identifier: Apache-2.0
"""Headings in float16 (pytorch issue 193040: the gradient of atan2 is infinite, or 0, where it is
250).
"""

import torch

torch.manual_seed(0)
for scale in (2e-3, 200.0):
    east = (torch.rand(12) + 0.5).mul(scale).half().requires_grad_()
    north = (torch.rand(12) + 0.5).mul(scale).half()
    torch.atan2(east, north).sum().backward()
    print(east.grad.abs().max().item())
