# SPDX-License-Identifier: Apache-2.0
"""C51 agent update: dueling categorical Q network, double-Q targets, n-step returns."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(0)
ATOMS, V_MIN, V_MAX, ACTIONS, OBS = 21, -4.0, 6.0, 4, 10
GAMMA, N_STEP, TAU = 0.95, 3, 0.2


class DuelingC51(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(OBS, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU()
        )
        self.value = nn.Linear(hidden, ATOMS)
        self.advantage = nn.Linear(hidden, ACTIONS * ATOMS)
        nn.init.normal_(self.advantage.weight, std=0.4)
        self.register_buffer("support", torch.linspace(V_MIN, V_MAX, ATOMS))

    def forward(self, obs):
        h = self.body(obs)
        v = self.value(h).view(-1, 1, ATOMS)
        a = self.advantage(h).view(-1, ACTIONS, ATOMS)
        q = v + a - a.mean(dim=1, keepdim=True)  # <- dueling_mean
        return F.log_softmax(q, dim=2)

    def greedy(self, obs):
        return (self(obs).exp() * self.support).sum(2).argmax(1)


def project(support, rewards, dones, probs):
    """Bellemare et al. (2017), algorithm 1, written out sample by sample."""
    delta = (V_MAX - V_MIN) / (ATOMS - 1)
    out = torch.zeros_like(probs)
    for i in range(probs.size(0)):
        for j in range(ATOMS):
            discount = GAMMA**N_STEP * (1.0 - dones[i])  # <- step_discount
            tz = rewards[i] + discount * support[j]  # <- step_discount
            b = (tz.clamp(V_MIN, V_MAX) - V_MIN) / delta
            lo, up = int(b.floor()), int(b.ceil())
            if lo == up:
                out[i, lo] += probs[i, j]
            else:
                out[i, lo] += probs[i, j] * (up - b)
                out[i, up] += probs[i, j] * (b - lo)
    return out


class Learner:
    def __init__(self):
        self.online, self.target = DuelingC51(), DuelingC51()
        self.target.load_state_dict(self.online.state_dict())
        self.opt = torch.optim.RMSprop(  # <- centred
            self.online.parameters(), lr=0.004, alpha=0.9, eps=1e-3, centered=True
        )  # <- centred

    def update(self, obs, act, rew, nxt, done, weight):
        with torch.no_grad():
            best = self.online.greedy(nxt)  # <- double_choice
            p = self.target(nxt).exp()[torch.arange(len(act)), best]  # <- double_choice
            goal = project(self.online.support, rew, done, p)
        logp = self.online(obs)[torch.arange(len(act)), act]
        ce = -(goal * logp).sum(1)
        loss = (weight * ce).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()  # <- centred
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.online.parameters()):
                old.mul_(1 - TAU).add_(TAU * new)  # <- target_average
        return loss.item()


def returns(g, n):
    r = torch.randn(n, N_STEP, generator=g)
    return (r * GAMMA ** torch.arange(N_STEP)).sum(1)


learner = Learner()
torch.save(learner.online.state_dict(), sys.argv[1])
g = torch.Generator().manual_seed(21)
losses = []
for _ in range(5):
    obs, nxt = torch.randn(2, 12, OBS, generator=g) * 1.5
    act = torch.randint(0, ACTIONS, (12,), generator=g)
    rew = returns(g, 12)
    done = (torch.rand(12, generator=g) < 0.25).float()
    weight = torch.rand(12, generator=g) + 0.5
    losses.append(learner.update(obs, act, rew, nxt, done, weight / weight.max()))
print(losses)
