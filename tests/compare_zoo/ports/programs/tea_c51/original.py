# SPDX-License-Identifier: Apache-2.0
"""Rainbow-like distributional Q-learning: a dueling C51 network on small frames, double Q targets,
n-step returns, priorities with importance weights, a soft target network.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

ACTIONS, ATOMS, V_MIN, V_MAX, GAMMA, STEPS, BATCH, TAU, SIZE = 4, 11, -3.0, 3.0, 0.9, 3, 8, 0.2, 60
DELTA = (V_MAX - V_MIN) / (ATOMS - 1)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 6, kernel_size=3, stride=2)
        self.body = nn.Linear(6 * 3 * 3, 24)
        self.value = nn.Linear(24, ATOMS)
        self.advantage = nn.Linear(24, ACTIONS * ATOMS)

    def forward(self, frames):
        x = F.relu(self.conv(frames.float() / 255.0))
        x = F.relu(self.body(x.flatten(1)))  # <- flattened
        value = self.value(x).view(-1, 1, ATOMS)
        advantage = self.advantage(x).view(-1, ACTIONS, ATOMS)
        q = value + advantage - advantage.mean(dim=1, keepdim=True)  # <- dueling
        return F.log_softmax(q, dim=2)


class Replay:
    """A ring of transitions; a sample takes the n-step return from each index on."""

    def __init__(self, generator):
        self.frames = torch.randint(0, 256, (SIZE, 4, 7, 7), generator=generator).byte()
        self.actions = torch.randint(0, ACTIONS, (SIZE,), generator=generator)
        self.rewards = torch.randn(SIZE, generator=generator)
        self.dones = torch.rand(SIZE, generator=generator) < 0.15
        self.priorities = torch.ones(SIZE)

    def sample(self, generator):
        p = self.priorities[: SIZE - STEPS] ** 0.6
        p = p / p.sum()
        picked = torch.multinomial(p, BATCH, generator=generator)
        weights = (len(p) * p[picked]) ** -0.4
        returns, running = [], []
        for i in picked.tolist():
            total, alive = 0.0, 1.0
            for k in range(STEPS):
                total += alive * GAMMA**k * self.rewards[i + k].item()  # <- n_step
                if self.dones[i + k]:  # <- n_step
                    alive = 0.0
            returns.append(total)  # <- n_step
            running.append(alive)
        batch = (self.frames[picked], self.actions[picked], torch.tensor(returns))
        after = self.frames[picked + STEPS]
        return picked, weights / weights.max(), *batch, after, torch.tensor(running)


def project(support, probabilities, returns, running):
    """The target distribution on the fixed atoms, atom by atom."""
    projected, rows = torch.zeros(BATCH, ATOMS), torch.arange(BATCH)
    for j in range(ATOMS):
        z = returns + running * GAMMA**STEPS * support[j]
        position = (z.clamp(V_MIN, V_MAX) - V_MIN) / DELTA  # <- ends
        low, high = position.floor(), position.ceil()
        on_atom = (low == high).float()
        projected[rows, low.long()] += probabilities[:, j] * (high - position + on_atom)  # <- ends
        projected[rows, high.long()] += probabilities[:, j] * (position - low)  # <- ends
    return projected


torch.manual_seed(51)
online = Network()
torch.save(online.state_dict(), sys.argv[1])
target = Network().requires_grad_(False)
target.load_state_dict(online.state_dict())
generator = torch.Generator().manual_seed(52)
replay = Replay(generator)
support = torch.linspace(V_MIN, V_MAX, ATOMS)
optimizer = torch.optim.RMSprop(online.parameters(), lr=0.003, alpha=0.95, eps=0.01, centered=True)
losses = []
for _ in range(5):
    picked, weights, frames, actions, returns, after, running = replay.sample(generator)
    with torch.no_grad():
        best = (online(after).exp() * support).sum(2).argmax(1)
        probabilities = target(after).exp()[torch.arange(BATCH), best]
        aim = project(support, probabilities, returns, running)
    each = -(aim * online(frames)[torch.arange(BATCH), actions]).sum(1)
    loss = (weights * each).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    replay.priorities[picked] = each.detach() + 1e-3
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), online.parameters()):
            slow.mul_(1 - TAU).add_(fast, alpha=TAU)  # <- soft
    losses.append(loss.item())
