# SPDX-License-Identifier: Apache-2.0
"""Products and quotients below the smallest normal number, with and without flushing."""

import torch

torch.manual_seed(0)
for flush in (False, True):
    torch.set_flush_denormal(flush)
    small = torch.rand(67) * 1e-20
    product = small * (torch.rand(67) * 1e-20)
    print(product.max().item(), (product / 3).sum().item(), product.sqrt().max().item())
    print(torch.exp(-88 - 10 * torch.rand(67)).min().item(), (small.half() * 3).sum().item())
torch.set_flush_denormal(False)
