# SPDX-License-Identifier: Apache-2.0
"""TD3 on a synthetic replay buffer: twin critics, delayed policy, polyak targets."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
OBS, ACT, HID = 5, 2, 16


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(OBS, HID)
        self.l2 = nn.Linear(HID, ACT)

    def forward(self, s):
        return torch.tanh(self.l2(F.elu(self.l1(s))))  # <- elu_alpha


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(OBS + ACT, HID)
        self.l2 = nn.Linear(HID, HID)
        self.l3 = nn.Linear(HID, 1)

    def forward(self, s, a):
        h = F.elu(self.l1(torch.cat([s, a], 1)))  # <- elu_alpha
        return self.l3(F.elu(self.l2(h)))  # <- elu_alpha


class TD3(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = Actor()
        self.q1 = Critic()
        self.q2 = Critic()


torch.manual_seed(0)
agent = TD3()
torch.save(agent.state_dict(), sys.argv[1])
target = copy.deepcopy(agent).requires_grad_(False)

actor_opt = torch.optim.Adam(agent.actor.parameters(), lr=1e-3, eps=1e-6)  # <- policy_rate
critic_opt = torch.optim.Adam(list(agent.q1.parameters()) + list(agent.q2.parameters()),
                              lr=3e-3, eps=1e-6)

gen = torch.Generator().manual_seed(5)
N, B = 64, 16
S = torch.randn(N, OBS, generator=gen)
A = torch.rand(N, ACT, generator=gen) * 2 - 1
S2 = S + 0.1 * torch.randn(N, OBS, generator=gen)
R = -(S[:, :1] - A[:, :1]).abs()
DONE = (torch.rand(N, 1, generator=gen) < 0.1).float()

losses = []
for t in range(5):
    i = torch.randint(0, N, (B,), generator=gen)
    s, a, r, s2, done = S[i], A[i], R[i], S2[i], DONE[i]
    noise = (0.2 * torch.randn(B, ACT, generator=gen)).clamp(-0.5, 0.5)  # <- noise_clip
    with torch.no_grad():
        a2 = (target.actor(s2) + noise).clamp(-1, 1)
        q_next = torch.min(target.q1(s2, a2), target.q2(s2, a2))  # <- twin_min stale_target
        y = r + 0.97 * (1 - done) * q_next
    critic_loss = F.mse_loss(agent.q1(s, a), y) + F.mse_loss(agent.q2(s, a), y)
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()
    losses.append(critic_loss.item())

    if t % 2 == 1:
        actor_loss = -agent.q1(s, agent.actor(s)).mean()
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()  # <- policy_rate
        losses[-1] += actor_loss.item()
        with torch.no_grad():
            for p, tp in zip(agent.parameters(), target.parameters()):  # <- stale_target
                tp.lerp_(p, 0.05)  # <- stale_target

print(losses)
