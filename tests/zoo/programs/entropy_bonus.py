# SPDX-License-Identifier: Apache-2.0
"""Policy gradient with an entropy bonus, p * log(p) taken literally."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.actions = nn.Linear(32, 5)

    def forward(self, state):
        return self.actions(self.body(state)).softmax(-1)


def entropy(p):
    logp = p.log()  # <- origin
    return -(p * logp).sum(-1)


torch.manual_seed(1)
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=0.5)
for step in range(8):
    state = torch.randn(32, 8)
    p = policy(state)
    action = torch.multinomial(p.nan_to_num(nan=0.2), 1)
    reward = (action.squeeze(1) == 0).float()
    gain = p.gather(1, action).squeeze(1)
    loss = -(gain * reward).mean() - 0.01 * entropy(p).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
