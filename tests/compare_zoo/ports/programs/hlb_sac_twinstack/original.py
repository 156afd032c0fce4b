# SPDX-License-Identifier: Apache-2.0
"""Soft actor-critic on a synthetic replay: twin critics, slow targets, learned temperature."""
import copy
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

OBS, ACT, HID = 7, 3, 24
GAMMA, TAU = 0.97, 0.02


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, HID), nn.SiLU(), nn.Linear(HID, HID), nn.SiLU(),
                         nn.Linear(HID, o))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = mlp(OBS, 2 * ACT)
        self.q1 = mlp(OBS + ACT, 1)
        self.q2 = mlp(OBS + ACT, 1)
        self.log_alpha = nn.Parameter(torch.tensor(-1.0))

    def act(self, obs, noise):
        mu, log_std = self.pi(obs).chunk(2, dim=-1)
        log_std = log_std.clamp(-5, 2)
        dist = torch.distributions.Normal(mu, log_std.exp())
        pre = mu + log_std.exp() * noise
        logp = dist.log_prob(pre).sum(-1)
        logp = logp - (2 * (math.log(2) - pre - F.softplus(-2 * pre))).sum(-1)  # <- jacobian
        return torch.tanh(pre), logp


torch.manual_seed(0)
agent = Agent()
torch.save(agent.state_dict(), sys.argv[1])
target1 = copy.deepcopy(agent.q1).requires_grad_(False)
target2 = copy.deepcopy(agent.q2).requires_grad_(False)

pi_opt = torch.optim.Adam(agent.pi.parameters(), lr=1e-3)
q_opt = torch.optim.Adam(  # <- critic_rate
    [*agent.q1.parameters(), *agent.q2.parameters()], lr=2e-3)  # <- critic_rate
alpha_opt = torch.optim.Adam([agent.log_alpha], lr=3e-3)

gen = torch.Generator().manual_seed(3)
losses = []
for step in range(4):
    B = 32
    obs = torch.randn(B, OBS, generator=gen)
    action = torch.tanh(torch.randn(B, ACT, generator=gen))
    reward = obs[:, 0] - action.square().sum(-1)
    next_obs = obs + 0.1 * torch.randn(B, OBS, generator=gen)
    done = (torch.rand(B, generator=gen) < 0.1).float()  # <- done_mask
    eps_next = torch.randn(B, ACT, generator=gen)
    eps_cur = torch.randn(B, ACT, generator=gen)

    with torch.no_grad():
        alpha = agent.log_alpha.exp()
        a2, logp2 = agent.act(next_obs, eps_next)
        sa2 = torch.cat([next_obs, a2], -1)
        q_next = torch.min(target1(sa2), target2(sa2)).squeeze(-1)
        backup = reward + GAMMA * (1 - done) * (q_next - alpha * logp2)  # <- done_mask

    sa = torch.cat([obs, action], -1)
    q_loss = (F.mse_loss(agent.q1(sa).squeeze(-1), backup)
              + F.mse_loss(agent.q2(sa).squeeze(-1), backup))
    q_opt.zero_grad()
    q_loss.backward()
    q_opt.step()  # <- critic_rate

    for q in (agent.q1, agent.q2):
        q.requires_grad_(False)
    a, logp = agent.act(obs, eps_cur)
    sa = torch.cat([obs, a], -1)
    pi_loss = (alpha * logp - torch.min(agent.q1(sa), agent.q2(sa)).squeeze(-1)).mean()
    pi_opt.zero_grad()
    pi_loss.backward()
    pi_opt.step()
    for q in (agent.q1, agent.q2):
        q.requires_grad_(True)

    alpha_loss = -(agent.log_alpha * (logp.detach() - ACT)).mean()  # <- entropy_goal
    alpha_opt.zero_grad()
    alpha_loss.backward()
    alpha_opt.step()

    with torch.no_grad():
        for t, q in ((target1, agent.q1), (target2, agent.q2)):
            for tp, p in zip(t.parameters(), q.parameters()):
                tp.mul_(1 - TAU).add_(TAU * p)  # <- tau
    losses.append(q_loss.item())

print(losses)
