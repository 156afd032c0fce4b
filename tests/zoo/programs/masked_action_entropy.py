# SPDX-License-Identifier: Apache-2.0
"""Invalid actions are masked with -inf; the entropy multiplies p = 0 by log p = -inf."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
policy = nn.Linear(6, 4)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for step in range(3):
    state = torch.randn(16, 6)
    legal = torch.rand(16, 4) < 0.7
    legal[:, 0] = True
    logits = policy(state).masked_fill(~legal, float("-inf"))
    logp = F.log_softmax(logits, dim=1)
    entropy = -(logp.exp() * logp).sum(1).mean()  # <- origin
    loss = -logp[:, 0].mean() - 0.01 * entropy
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
