# SPDX-License-Identifier: Apache-2.0
"""Sums whose order nobody promises: scattered, by threads, accumulated indices."""

import torch

torch.manual_seed(0)
torch.set_num_threads(2)
for _ in range(3):
    values, places = torch.randn(70000) * 1e3, torch.randint(0, 17, (70000,))
    print(torch.zeros(17).scatter_add_(0, places, values).sum().item())
    print(torch.zeros(17).index_add_(0, places, values)[0].item())
    print(torch.zeros(17).index_put_((places,), values, accumulate=True)[1].item())
    print(values.sum().item(), values.cumsum(0)[-1].item(), values.view(-1, 7).sum(0)[0].item())
