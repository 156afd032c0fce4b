# SPDX-License-Identifier: Apache-2.0
"""Invalid actions masked with -inf, sampled and scored without touching their probabilities."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy = nn.Linear(6, 4)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for step in range(4):
    state = torch.randn(16, 6)
    legal = torch.rand(16, 4) < 0.6
    legal[:, 1] = True
    choice = Categorical(logits=policy(state).masked_fill(~legal, float("-inf")))
    action = choice.sample()
    reward = (action == 1).float() - 0.5
    loss = -(choice.log_prob(action) * reward).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
