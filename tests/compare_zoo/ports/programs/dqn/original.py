# SPDX-License-Identifier: Apache-2.0
"""Q-learning with a target network (Mnih et al., 2015)."""

import copy
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.value, self.advantage = nn.Linear(24, 1), nn.Linear(24, 4)

    def forward(self, x):
        x = self.body(x)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(1, keepdim=True)  # <- dueling


torch.manual_seed(21)
policy = QNet()
target = copy.deepcopy(policy)
torch.save(policy.state_dict(), sys.argv[1])
optimizer = torch.optim.RMSprop(policy.parameters(), lr=2e-3, alpha=0.95, eps=0.01)
rng = np.random.default_rng(25)
losses = []
for _ in range(3):
    state = torch.from_numpy(rng.standard_normal((8, 6), dtype=np.float32))
    after = torch.from_numpy(rng.standard_normal((8, 6), dtype=np.float32))
    action = torch.from_numpy(rng.integers(0, 4, 8))
    reward = torch.from_numpy(3 * rng.standard_normal(8, dtype=np.float32))
    done = torch.from_numpy((rng.random(8) < 0.3).astype(np.float32))
    q = policy(state).gather(1, action[:, None]).squeeze(1)
    with torch.no_grad():
        best = target(after).max(1).values  # <- double
        wanted = reward + 0.9 * best * (1 - done)  # <- done gamma double
    loss = F.smooth_l1_loss(q, wanted)  # <- huber gamma done
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- epsilon
    losses.append(loss.item())
