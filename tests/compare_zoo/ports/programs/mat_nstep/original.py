# SPDX-License-Identifier: Apache-2.0
"""Recurrent actor-critic on recorded rollouts: n-step returns, entropy bonus, target critic."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

OBS, ACTIONS, HID, T, B = 5, 4, 7, 8, 3
GAMMA, NSTEP = 0.95, 3


class DuelingHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(HID, 1)
        self.adv = nn.Linear(HID, ACTIONS)

    def forward(self, h):
        v, a = self.value(h), self.adv(h)
        return v + a - a.mean(dim=-1, keepdim=True)  # <- dueling_mean


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(OBS, HID), nn.ELU())
        self.cell = nn.LSTMCell(HID, HID)
        self.policy = nn.Linear(HID, ACTIONS)
        self.critic = DuelingHead()

    def forward(self, obs, done):
        h = c = torch.zeros(B, HID)
        hs = []
        for t in range(T + 1):
            if t > 0:
                keep = (1 - done[t - 1]).unsqueeze(1)  # <- reset_state
                h, c = h * keep, c * keep  # <- reset_state
            h, c = self.cell(self.encoder(obs[t]), (h, c))
            hs.append(h)
        h = torch.stack(hs)
        return self.policy(h), self.critic(h)


def nstep_targets(reward, done, bootstrap):
    """bootstrap[t] is the value of the state at t; lengths T and T + 1"""
    targets = torch.zeros_like(reward)
    for t in range(T):
        ret = torch.zeros(B)
        alive = torch.ones(B)
        discount = 1.0
        k = t
        while k < min(t + NSTEP, T):
            ret = ret + discount * alive * reward[k]  # <- done_mask
            alive = alive * (1 - done[k])  # <- done_mask
            discount *= GAMMA
            k += 1
        targets[t] = ret + discount * alive * bootstrap[k]  # <- done_mask
    return targets


def rollouts(n):
    gen = torch.Generator().manual_seed(2024)
    for _ in range(n):
        obs = torch.randn(T + 1, B, OBS, generator=gen)
        action = torch.randint(0, ACTIONS, (T, B), generator=gen)
        reward = torch.randn(T, B, generator=gen)
        done = (torch.rand(T, B, generator=gen) < 0.2).float()
        yield obs, action, reward, done


torch.manual_seed(0)
agent = Agent()
torch.save(agent.state_dict(), sys.argv[1])
target = Agent()
target.load_state_dict(agent.state_dict())
optimizer = torch.optim.SGD(
    [  # <- dampening
        {"params": list(agent.encoder.parameters()) + list(agent.cell.parameters()), "lr": 0.05},
        {"params": agent.policy.parameters(), "lr": 0.1},
        {"params": agent.critic.parameters(), "lr": 0.2},
    ],
    momentum=0.9,
    dampening=0.1,
)  # <- dampening
losses = []
for step, (obs, action, reward, done) in enumerate(rollouts(5)):
    logits, q = agent(obs, done)
    with torch.no_grad():
        _, tq = target(obs, done)
        pi = logits.softmax(-1)
        boot = (pi * tq).sum(-1)
        targets = nstep_targets(reward, done, boot)
    taken = q[:-1].gather(-1, action.unsqueeze(-1)).squeeze(-1)
    critic_loss = F.smooth_l1_loss(taken, targets, beta=0.5)
    logp = F.log_softmax(logits[:-1], dim=-1)
    baseline = (pi[:-1] * q[:-1]).sum(-1)
    advantage = (taken - baseline).detach()  # <- advantage_detach
    chosen = logp.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    actor_loss = -(chosen * advantage).mean()  # <- advantage_detach
    entropy = -(logp.exp() * logp).sum(-1).mean()
    loss = actor_loss + 0.5 * critic_loss - 0.02 * entropy
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- dampening
    if step % 2 == 1:
        target.load_state_dict(agent.state_dict())
    losses.append(loss.item())
print(losses)
