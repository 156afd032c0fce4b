# SPDX-License-Identifier: Apache-2.0
"""A dueling double DQN with n-step returns on a fixed buffer of made-up transitions."""
import copy
import sys

import torch
from torch import nn

torch.set_num_threads(1)


class RunningMeanStd:
    """Mean and variance of all observations so far, merged batch by batch."""

    def __init__(self, size, count=1e-2):
        self.mean, self.var, self.count = torch.zeros(size), torch.ones(size), count

    def update(self, batch):
        mean, var, n = batch.mean(0), batch.var(0, unbiased=False), len(batch)
        delta = mean - self.mean
        total = self.count + n
        cross = delta.pow(2) * self.count * n / total  # <- obs_merge
        self.var = (self.var * self.count + var * n + cross) / total  # <- obs_merge
        self.mean = self.mean + delta * n / total
        self.count = total

    def __call__(self, obs):
        return ((obs - self.mean) / (self.var + 1e-8).sqrt()).clamp(-5, 5)


class DuelingNet(nn.Module):
    def __init__(self, obs, actions, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU())
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, actions)

    def forward(self, obs):
        h = self.body(obs)
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(dim=1, keepdim=True)  # <- dueling_mean


class Buffer:
    def __init__(self, size, obs_size, actions, gen):
        self.obs = torch.randn(size + 1, obs_size, generator=gen).cumsum(0) * 0.3 + 1.0
        self.action = torch.randint(0, actions, (size,), generator=gen)
        self.reward = torch.randn(size, generator=gen) + 0.5 * (self.action == 1)
        self.done = torch.rand(size, generator=gen) < 0.15
        self.gen = gen

    def nstep(self, start, n, gamma):
        ret, discount = 0.0, 1.0
        for i in range(start, start + n):
            ret += discount * self.reward[i].item()
            discount *= gamma
            if self.done[i]:  # <- nstep_done
                return ret, i + 1, 0.0  # <- nstep_done
        return ret, start + n, discount

    def sample(self, batch, n, gamma):
        index = torch.randint(0, len(self.action) - n, (batch,), generator=self.gen)
        parts = [self.nstep(i, n, gamma) for i in index.tolist()]
        ret, last, discount = zip(*parts)
        return (self.obs[index], self.action[index], torch.tensor(ret),
                self.obs[list(last)], torch.tensor(discount))


class Agent:
    def __init__(self, path, gamma=0.97, tau=0.2, n=3):
        torch.manual_seed(31)
        self.net = DuelingNet(6, 4, 24)
        torch.save(self.net.state_dict(), path)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.scaler = RunningMeanStd(6)
        self.buffer = Buffer(96, 6, 4, torch.Generator().manual_seed(9))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-3, eps=1e-5)  # <- adam_bias
        self.criterion = nn.SmoothL1Loss()
        self.gamma, self.tau, self.n = gamma, tau, n

    @torch.no_grad()
    def bootstrap(self, ret, next_obs, discount):
        best = self.net(next_obs).argmax(1, keepdim=True)
        return ret + discount * self.target(next_obs).gather(1, best).squeeze(1)

    def learn(self):
        obs, action, ret, next_obs, discount = self.buffer.sample(20, self.n, self.gamma)
        self.scaler.update(obs)
        obs, next_obs = self.scaler(obs), self.scaler(next_obs)
        goal = self.bootstrap(ret, next_obs, discount)
        chosen = self.net(obs).gather(1, action[:, None]).squeeze(1)
        loss = self.criterion(chosen, goal)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.net.parameters(), 1.0)
        self.optimizer.step()  # <- adam_bias target_order
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.net.parameters()):
                old.lerp_(new, self.tau)  # <- target_order
        return loss.item()


agent = Agent(sys.argv[1])
losses = [agent.learn() for _ in range(5)]
print(losses)
