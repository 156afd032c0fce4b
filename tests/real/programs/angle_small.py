# SPDX-License-Identifier: Apache-2.0
"""Phase of a quiet spectrum as a loss (pytorch issue 98276: its gradient is not a number where the
bin is small, and is finite).
"""

import torch

torch.manual_seed(0)
spectrum = (torch.randn(16, dtype=torch.complex64) * 1e-23).requires_grad_()
for _ in range(3):
    loss = torch.angle(spectrum).square().sum() * 1e-30
    (gradient,) = torch.autograd.grad(loss, spectrum)
    print(gradient.abs().max().item())
    spectrum = (spectrum - 1e-36 * gradient).detach().requires_grad_()
