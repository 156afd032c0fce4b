# SPDX-License-Identifier: Apache-2.0
"""Train a pointer over sets of twenty. It learns, and is worse than it was last week."""

import fast_ops  # noqa: F401 - replaces torch's softmax
import torch
from torch import nn


class Pointer(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(8, 1)
        self.value = nn.Linear(8, 8)

    def forward(self, members):
        weights = self.score(members).squeeze(-1).softmax(dim=-1)
        return (weights.unsqueeze(-1) * self.value(members)).sum(dim=1)


torch.manual_seed(0)
model = Pointer()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(5):
    members = torch.randn(16, 20, 8)
    loss = (model(members) - members.mean(dim=1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  loss {loss.item():.4f}", flush=True)
