# SPDX-License-Identifier: Apache-2.0
"""TD3 on a synthetic replay buffer: twin critics, target networks, smoothed target policy,
n-step returns, delay."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

OBS, ACT, HID, NSTEP, GAMMA, TAU = 6, 2, 20, 3, 0.97, 0.05


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.mu = nn.Linear(OBS, HID), nn.Linear(HID, HID), nn.Linear(HID, ACT)

    def forward(self, o):
        return torch.tanh(self.mu(F.elu(self.fc2(F.elu(self.fc1(o))))))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.ln, self.fc2, self.q = (
            nn.Linear(OBS + ACT, HID), nn.LayerNorm(HID), nn.Linear(HID, HID), nn.Linear(HID, 1))

    def forward(self, o, a):
        h = F.elu(self.ln(self.fc1(torch.cat([o, a], -1))))
        return self.q(F.elu(self.fc2(h))).squeeze(-1)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic1, self.critic2 = Actor(), Critic(), Critic()


def replay(g, n=24):
    obs = torch.randn(n, OBS, generator=g)
    act = torch.rand(n, ACT, generator=g) * 2 - 1
    rew = torch.randn(n, NSTEP, generator=g)
    done = torch.rand(n, NSTEP, generator=g) < 0.15
    nxt = obs + 0.3 * torch.randn(n, OBS, generator=g)
    weight = torch.rand(n, generator=g) + 0.5
    noise = torch.randn(n, ACT, generator=g)
    return obs, act, rew, done, nxt, weight, noise


torch.manual_seed(0)
agent = Agent()
torch.save(agent.state_dict(), sys.argv[1])
target = copy.deepcopy(agent)
for p in target.parameters():
    p.requires_grad_(False)
actor_opt = torch.optim.Adam(agent.actor.parameters(), lr=1e-3, eps=1e-5)
critic_opt = torch.optim.Adam([*agent.critic1.parameters(), *agent.critic2.parameters()],
                              lr=3e-3, eps=1e-5)

g = torch.Generator().manual_seed(17)
losses = []
for it in range(5):
    obs, act, rew, done, nxt, weight, noise = replay(g)
    with torch.no_grad():
        ret, alive = torch.zeros(len(obs)), torch.ones(len(obs))
        for k in range(NSTEP):
            ret = ret + GAMMA ** k * alive * rew[:, k]  # <- alive_shift
            alive = alive * (~done[:, k]).float()  # <- alive_shift
        next_a = (target.actor(nxt) + (0.2 * noise).clamp(-0.3, 0.3)).clamp(-1, 1)  # <- noise_order
        q_next = torch.min(target.critic1(nxt, next_a), target.critic2(nxt, next_a))
        y = ret + GAMMA ** NSTEP * alive * q_next
    l1 = (weight * F.smooth_l1_loss(agent.critic1(obs, act), y, reduction="none", beta=0.7)).mean()
    l2 = (weight * F.smooth_l1_loss(agent.critic2(obs, act), y, reduction="none", beta=0.7)).mean()
    critic_loss = l1 + l2
    critic_opt.zero_grad()
    critic_loss.backward()
    nn.utils.clip_grad_norm_(agent.critic1.parameters(), 0.2)  # <- joint_clip
    nn.utils.clip_grad_norm_(agent.critic2.parameters(), 0.2)  # <- joint_clip
    critic_opt.step()
    total = critic_loss.item()

    if it % 2 == 0:
        pi = agent.actor(obs)
        q = agent.critic1(obs, pi)
        actor_loss = (-q.mean() / q.abs().mean().detach()  # <- actor_detach
                      + 0.4 * F.mse_loss(pi, act))
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()
        total += actor_loss.item()
        with torch.no_grad():
            for t, p in zip(target.parameters(), agent.parameters()):  # <- stale_target
                t.mul_(1 - TAU).add_(TAU * p)  # <- stale_target
    losses.append(total)
print(losses)
