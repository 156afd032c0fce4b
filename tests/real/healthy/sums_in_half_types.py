# SPDX-License-Identifier: Apache-2.0
"""Means, products and norms in bfloat16 and float16, of many terms."""

import torch

torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16):
    for _ in range(2):
        x = torch.rand(96, 515).to(dtype)
        print(x.mean().item(), x.sum(1).mean().item(), x.var(0).mean().item())
        print((x @ x.T).float().mean().item(), x.float().cumsum(1)[:, -1].mean().item())
        print(
            torch.softmax(8 * x, 1).max().item(), torch.nn.functional.gelu(4 * x - 2).mean().item()
        )
