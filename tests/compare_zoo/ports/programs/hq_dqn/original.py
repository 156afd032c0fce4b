# SPDX-License-Identifier: Apache-2.0
"""Dueling double DQN from a fixed replay buffer: Huber loss, importance weights, hard target update."""
import random
import sys
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(53)

Transition = namedtuple("Transition", "state action reward next_state done weight")
OBS, ACTIONS, GAMMA, BATCH = 8, 4, 0.97, 12


class DuelingDQN(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.feature = nn.Sequential(nn.Linear(OBS, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Sequential(nn.Linear(hidden, 16), nn.ReLU(), nn.Linear(16, 1))
        self.advantage = nn.Sequential(nn.Linear(hidden, 16), nn.ReLU(), nn.Linear(16, ACTIONS))

    def forward(self, x):
        h = self.feature(x)
        v, a = self.value(h), self.advantage(h)
        return v + a - a.mean(dim=1, keepdim=True)


class ReplayBuffer:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, n, rng):
        batch = Transition(*zip(*rng.sample(list(self.memory), n)))
        return (torch.stack(batch.state), torch.tensor(batch.action), torch.tensor(batch.reward),
                torch.stack(batch.next_state), torch.tensor(batch.done, dtype=torch.float32), torch.tensor(batch.weight))


def fill(buffer, n=80):
    gen = torch.Generator().manual_seed(530)
    s = torch.randn(OBS, generator=gen)
    for _ in range(n):
        a = int(torch.randint(ACTIONS, (1,), generator=gen))
        s2 = 0.9 * s + 0.5 * torch.randn(OBS, generator=gen)
        s2[a] += 0.3
        r = float(2.0 * s2[a] - 0.1 * s2.square().sum())
        done = bool(torch.rand((), generator=gen) < 0.15)
        w = 0.5 + 0.5 * float(torch.rand((), generator=gen))
        buffer.push(s, a, r, s2, done, w)
        s = torch.randn(OBS, generator=gen) if done else s2


policy_net = DuelingDQN()
target_net = DuelingDQN()
target_net.load_state_dict(policy_net.state_dict())
torch.save(policy_net.state_dict(), sys.argv[1])

buffer = ReplayBuffer(100)
fill(buffer)
optimizer = torch.optim.RMSprop(policy_net.parameters(), lr=2e-3, alpha=0.95, eps=1e-2, momentum=0.5)
rng = random.Random(9)

losses = []
for step in range(6):
    s, a, r, s2, done, w = buffer.sample(BATCH, rng)
    q = policy_net(s).gather(1, a.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = policy_net(s2).argmax(dim=1, keepdim=True)
        next_q = target_net(s2).gather(1, best).squeeze(1)
        target = r + GAMMA * (1 - done) * next_q
    loss = (w * F.smooth_l1_loss(q, target, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in policy_net.parameters():
        p.grad.clamp_(-0.05, 0.05)
    optimizer.step()
    if (step + 1) % 2 == 0:
        target_net.load_state_dict(policy_net.state_dict())
    losses.append(loss.item())
print(losses)
