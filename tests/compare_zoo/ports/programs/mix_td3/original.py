# SPDX-License-Identifier: Apache-2.0
"""TD3 updates from a recorded replay buffer; the critic loss runs under torch.compile."""

import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

STATE, ACTION, MAX_ACTION = 7, 2, 2.0


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(STATE, 20)
        self.l2 = nn.Linear(20, ACTION)

    def forward(self, state):
        a = F.relu(self.l1(state))
        return MAX_ACTION * torch.tanh(self.l2(a))  # <- action_range


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(STATE + ACTION, 20), nn.Linear(20, 1)
        self.l4, self.l5 = nn.Linear(STATE + ACTION, 20), nn.Linear(20, 1)

    def forward(self, state, action):
        sa = torch.cat([state, action], 1)
        return self.l2(F.relu(self.l1(sa))), self.l5(F.relu(self.l4(sa)))

    def Q1(self, state, action):
        return self.l2(F.relu(self.l1(torch.cat([state, action], 1))))


class TD3:
    def __init__(self, discount=0.9, tau=0.1, noise_clip=0.5, policy_freq=2):
        self.actor, self.critic = Actor(), Critic()
        self.actor_target = copy.deepcopy(self.actor)
        self.critic_target = copy.deepcopy(self.critic)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-2)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-2)
        self.discount, self.tau = discount, tau  # <- soft_target
        self.noise_clip, self.policy_freq = noise_clip, policy_freq
        self.critic_loss = torch.compile(self._critic_loss, backend="aot_eager")
        self.total_it = 0

    def _critic_loss(self, state, action, target_Q):
        current_Q1, current_Q2 = self.critic(state, action)
        return F.smooth_l1_loss(current_Q1, target_Q) + F.smooth_l1_loss(current_Q2, target_Q)

    def train(self, state, action, next_state, reward, not_done, noise):
        self.total_it += 1
        with torch.no_grad():
            noise = noise.clamp(-self.noise_clip, self.noise_clip)
            next_action = (self.actor_target(next_state) + noise).clamp(-MAX_ACTION, MAX_ACTION)
            target_Q1, target_Q2 = self.critic_target(next_state, next_action)
            target_Q = torch.min(target_Q1, target_Q2)  # <- twin_minimum
            target_Q = reward + not_done * self.discount * target_Q  # <- terminal_mask
        critic_loss = self.critic_loss(state, action, target_Q)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        if self.total_it % self.policy_freq == 0:  # <- policy_delay
            actor_loss = -self.critic.Q1(state, self.actor(state)).mean()  # <- policy_delay
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()  # <- policy_delay
            for net, target in ((self.critic, self.critic_target), (self.actor, self.actor_target)):
                for param, slow in zip(net.parameters(), target.parameters()):
                    moved = self.tau * param.data + (1 - self.tau) * slow.data  # <- soft_target
                    slow.data.copy_(moved)  # <- soft_target
        return critic_loss.item()


torch.manual_seed(16)
agent = TD3()
with torch.no_grad():
    agent.actor_target.l2.weight.mul_(3)
    agent.critic_target.l2.bias.add_(0.1)
torch.save(
    {
        "actor": agent.actor.state_dict(),
        "critic": agent.critic.state_dict(),
        "actor_target": agent.actor_target.state_dict(),
        "critic_target": agent.critic_target.state_dict(),
    },
    sys.argv[1],
)

g = torch.Generator().manual_seed(47)
losses = []
for _ in range(5):
    s = torch.randn(24, STATE, generator=g)
    a = torch.randn(24, ACTION, generator=g).clamp(-MAX_ACTION, MAX_ACTION)
    s2 = torch.randn(24, STATE, generator=g)
    r = torch.randn(24, 1, generator=g) * 1.5
    alive = (torch.rand(24, 1, generator=g) < 0.75).float()
    eps = torch.randn(24, ACTION, generator=g) * 0.4
    losses.append(agent.train(s, a, s2, r, alive, eps))
print(losses)
