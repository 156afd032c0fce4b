# SPDX-License-Identifier: Apache-2.0
"""Advantage actor-critic on vectorised pendulums: generalised advantages, RMSprop, normalised
observations.
"""

import sys

import torch
from torch import nn
from torch.distributions import Normal

ENVS, HORIZON, GAMMA, LAMBDA, LIMIT = 4, 6, 0.95, 0.9, 9


class Pendulums:
    """Torque on a rod; an episode ends when it falls, and is cut after LIMIT steps."""

    def __init__(self, generator):
        self.generator = generator
        self.state = self.fresh()
        self.age = torch.tensor([0, 2, 4, 6])

    def fresh(self):
        return torch.rand(ENVS, 2, generator=self.generator) - 0.5

    def observe(self):
        angle, speed = self.state.unbind(1)
        return torch.stack([angle, (3 * angle).sin(), speed], dim=1)

    def step(self, action):
        angle, speed = self.state.unbind(1)
        torque = action.clamp(-1, 1).sum(1)
        speed = speed + 0.2 * (4 * angle.sin() + 2 * torque)
        angle = angle + 0.2 * speed
        reward = 1 - angle**2 - 0.1 * speed**2 - 0.01 * torque**2
        fallen = angle.abs() > 1.0
        self.age += 1
        done = fallen | (self.age >= LIMIT)
        self.state = torch.where(done[:, None], self.fresh(), torch.stack([angle, speed], 1))
        self.age[done] = 0
        return self.observe(), reward, done.float()


class RunningMeanStd:
    def __init__(self, size):
        self.mean, self.var, self.count = torch.zeros(size), torch.ones(size), 1e-4

    def update(self, x):
        delta, n = x.mean(0) - self.mean, len(x)
        total = self.count + n
        m2 = self.var * self.count + x.var(0, unbiased=False) * n
        self.var = (m2 + delta**2 * self.count * n / total) / total  # <- running_variance
        self.mean, self.count = self.mean + delta * n / total, total

    def __call__(self, x):
        self.update(x)
        scaled = (x - self.mean) / torch.sqrt(self.var + 1e-8)  # <- running_variance
        return scaled.clamp(-5, 5)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.mu = nn.Linear(16, 2)
        self.log_std = nn.Parameter(torch.full((2,), -0.5))
        self.value = nn.Linear(16, 1)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.orthogonal_(layer.weight, 2**0.5)
                nn.init.zeros_(layer.bias)

    def forward(self, obs):
        h = self.body(obs)
        return Normal(self.mu(h), self.log_std.exp()), self.value(h).squeeze(-1)


def gae(rewards, values, dones, last_value):
    advantages = torch.zeros_like(rewards)
    running = torch.zeros(ENVS)
    for t in reversed(range(HORIZON)):
        following = last_value if t == HORIZON - 1 else values[t + 1]
        delta = rewards[t] + GAMMA * following * (1 - dones[t]) - values[t]  # <- done_shifted
        running = delta + GAMMA * LAMBDA * (1 - dones[t]) * running  # <- done_shifted
        advantages[t] = running
    return advantages


def main():
    torch.manual_seed(51)
    policy = ActorCritic()
    torch.save(policy.state_dict(), sys.argv[1])
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3, eps=1e-2)  # <- tf_rmsprop
    generator = torch.Generator().manual_seed(52)
    envs, normalise = Pendulums(generator), RunningMeanStd(3)
    obs = normalise(envs.observe())
    losses = []
    for _ in range(4):
        log_probs, values, rewards, dones, entropies = [], [], [], [], []
        for _ in range(HORIZON):
            dist, value = policy(obs)  # <- obs_shifted
            noise = torch.randn(ENVS, 2, generator=generator)
            action = (dist.loc + dist.scale * noise).detach()
            obs, reward, done = envs.step(action)
            obs = normalise(obs)
            log_probs.append(dist.log_prob(action).sum(-1))
            entropies.append(dist.entropy().sum(-1))  # <- entropy
            values.append(value)
            rewards.append(reward)
            dones.append(done)
        with torch.no_grad():
            last_value = policy(obs)[1]
        values, rewards, dones = torch.stack(values), torch.stack(rewards), torch.stack(dones)
        advantages = gae(rewards, values.detach(), dones, last_value)  # <- attached
        returns = advantages + values.detach()  # <- attached
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -(torch.stack(log_probs) * advantages).mean()
        value_loss = 0.5 * (returns - values).pow(2).mean()  # <- attached
        loss = policy_loss + value_loss - 0.01 * torch.stack(entropies).mean()  # <- entropy
        optimizer.zero_grad()
        loss.backward()  # <- attached
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()  # <- tf_rmsprop
        losses += [value_loss.item(), loss.item()]
    return losses


losses = main()
