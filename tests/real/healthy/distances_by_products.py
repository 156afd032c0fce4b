# SPDX-License-Identifier: Apache-2.0
"""Distances of neighbours, which are documented to lose digits beside large coordinates."""

import torch

torch.manual_seed(0)
for _ in range(3):
    points = 100 + torch.randn(40, 8)
    near = points + 1e-3 * torch.randn(40, 8)
    print(torch.cdist(points, near).diagonal().mean().item())
    squares = (points * points).sum(1)
    by_hand = squares[:, None] + squares - 2 * points @ points.T
    print(by_hand.clamp(min=0).sqrt().mean().item())
