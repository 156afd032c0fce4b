# SPDX-License-Identifier: Apache-2.0
"""Soft Actor-Critic as Haarnoja et al. (2018) have it, on replay data that is given: twin critics
with targets, a squashed Gaussian for actor, a learned temperature.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

OBS, ACTIONS, HIDDEN, BATCH = 11, 3, 32, 24
GAMMA, TAU, LIMIT, LOG_STD_MIN, LOG_STD_MAX = 0.99, 0.05, 2.0, -5, 2


class SoftQNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(OBS + ACTIONS, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, HIDDEN)
        self.fc3 = nn.Linear(HIDDEN, 1)

    def forward(self, x, a):
        x = F.relu(self.fc1(torch.cat([x, a], 1)))
        x = F.relu(self.fc2(x))
        return self.fc3(x).view(-1)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(OBS, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, HIDDEN)
        self.fc_mean = nn.Linear(HIDDEN, ACTIONS)
        self.fc_logstd = nn.Linear(HIDDEN, ACTIONS)

    def forward(self, x):
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        log_std = torch.tanh(self.fc_logstd(x))  # <- deviation
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)  # <- deviation
        return self.fc_mean(x), log_std

    def get_action(self, x, noise):
        mean, log_std = self(x)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x_t = mean + noise * log_std.exp()
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t)
        log_prob = log_prob - torch.log(LIMIT * (1 - y_t.pow(2)) + 1e-6)  # <- squash
        return y_t * LIMIT, log_prob.sum(1)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = Actor()
        self.qf1, self.qf2 = SoftQNetwork(), SoftQNetwork()
        self.qf1_target, self.qf2_target = SoftQNetwork(), SoftQNetwork()
        self.qf1_target.load_state_dict(self.qf1.state_dict())
        self.qf2_target.load_state_dict(self.qf2.state_dict())
        self.log_alpha = nn.Parameter(torch.tensor(math.log(0.2)))


torch.manual_seed(51)
agent = Agent()
torch.save(agent.state_dict(), sys.argv[1])
critics = [*agent.qf1.parameters(), *agent.qf2.parameters()]
targets = [*agent.qf1_target.parameters(), *agent.qf2_target.parameters()]
q_optimizer = torch.optim.Adam(critics, lr=1e-2)
actor_optimizer = torch.optim.Adam(agent.actor.parameters(), lr=3e-3)
alpha_optimizer = torch.optim.Adam([agent.log_alpha], lr=1e-2)
target_entropy = -float(ACTIONS)
rng = np.random.default_rng(52)
replay = {
    "observations": rng.standard_normal((100, OBS)),
    "actions": rng.uniform(-LIMIT, LIMIT, (100, ACTIONS)),
    "rewards": rng.standard_normal(100),
    "next_observations": rng.standard_normal((100, OBS)),
    "dones": rng.random(100) < 0.25,
}
losses = []
for _ in range(3):
    chosen = rng.integers(0, 100, BATCH)
    data = {k: torch.from_numpy(v[chosen].astype(np.float32)) for k, v in replay.items()}
    noise = torch.from_numpy(rng.standard_normal((2, BATCH, ACTIONS), dtype=np.float32))
    alpha = agent.log_alpha.exp().item()

    with torch.no_grad():
        next_actions, next_log_pi = agent.actor.get_action(data["next_observations"], noise[0])
        qf1_next = agent.qf1_target(data["next_observations"], next_actions)
        qf2_next = agent.qf2_target(data["next_observations"], next_actions)
        min_qf_next = torch.min(qf1_next, qf2_next) - alpha * next_log_pi  # <- twins entropy
        next_q = data["rewards"] + (1 - data["dones"]) * GAMMA * min_qf_next  # <- terminal
    qf1_loss = F.mse_loss(agent.qf1(data["observations"], data["actions"]), next_q)  # <- half
    qf2_loss = F.mse_loss(agent.qf2(data["observations"], data["actions"]), next_q)  # <- half
    qf_loss = qf1_loss + qf2_loss  # <- half
    q_optimizer.zero_grad()
    qf_loss.backward()
    q_optimizer.step()

    actions, log_pi = agent.actor.get_action(data["observations"], noise[1])
    qf1_pi = agent.qf1(data["observations"], actions)
    qf2_pi = agent.qf2(data["observations"], actions)
    actor_loss = (alpha * log_pi - torch.min(qf1_pi, qf2_pi)).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()

    alpha_loss = (-agent.log_alpha.exp() * (log_pi.detach() + target_entropy)).mean()  # <- goal
    alpha_optimizer.zero_grad()
    alpha_loss.backward()
    alpha_optimizer.step()

    with torch.no_grad():
        for param, target_param in zip(critics, targets):
            target_param.copy_(TAU * param + (1 - TAU) * target_param)  # <- polyak
    losses += [qf_loss.item(), actor_loss.item(), alpha_loss.item()]
