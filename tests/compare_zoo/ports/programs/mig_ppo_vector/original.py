# SPDX-License-Identifier: Apache-2.0
"""PPO of a team's own: rollouts kept in lists, advantages by a loop backwards, one network with two
ends, minibatches of a shuffled rollout.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

STATE, ACTIONS, HIDDEN, STEPS, ENVS, GAMMA, LAMBDA, CLIP = 6, 4, 16, 12, 3, 0.95, 0.9, 0.2


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(STATE, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()
        )
        self.actor = nn.Linear(HIDDEN, ACTIONS)
        self.critic = nn.Linear(HIDDEN, 1)

    def forward(self, states):
        features = self.body(states)
        return Categorical(logits=self.actor(features)), self.critic(features).squeeze(-1)


class World:
    """A linear system whose noise is drawn beforehand."""

    def __init__(self, generator):
        self.generator = generator
        self.turn = 0.4 * torch.randn(STATE, STATE, generator=generator)
        self.push = 0.5 * torch.randn(ACTIONS, STATE, generator=generator)
        self.state = torch.randn(ENVS, STATE, generator=generator)

    def step(self, actions):
        moved = torch.tanh(self.state @ self.turn + self.push[actions])
        fresh = torch.randn(ENVS, STATE, generator=self.generator)
        done = torch.rand(ENVS, generator=self.generator) < 0.15
        reward = 0.2 * (2 * moved[:, 0] - moved.square().sum(1))
        self.state = torch.where(done[:, None], fresh, moved)
        return reward, done.float()


torch.manual_seed(231)
model = ActorCritic()
with torch.no_grad():
    model.actor.weight.mul_(3.0)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-3)
generator = torch.Generator().manual_seed(232)
world = World(generator)
states, actions, logps, rewards, dones, values = [], [], [], [], [], []
with torch.no_grad():
    for _ in range(STEPS):
        distribution, value = model(world.state)
        action = torch.randint(ACTIONS, (ENVS,), generator=generator)
        states.append(world.state)
        actions.append(action)
        logps.append(distribution.log_prob(action))
        values.append(value)
        reward, done = world.step(action)
        rewards.append(reward)
        dones.append(done)
    values.append(model(world.state)[1])  # <- bootstrap

advantage = torch.zeros(ENVS)
advantages = []
for t in reversed(range(STEPS)):
    going = 1.0 - dones[t]  # <- ended
    delta = rewards[t] + GAMMA * values[t + 1] * going - values[t]  # <- ended bootstrap
    advantage = delta + GAMMA * LAMBDA * going * advantage  # <- ended
    advantages.insert(0, advantage)
advantages = torch.stack(advantages).flatten()
returns = advantages + torch.stack(values[:-1]).flatten()
states, actions, logps = torch.cat(states), torch.cat(actions), torch.cat(logps)

losses = []
for _ in range(2):
    order = torch.randperm(STEPS * ENVS, generator=generator)
    for part in order.chunk(2):
        distribution, value = model(states[part])
        chosen = advantages[part]
        chosen = (chosen - chosen.mean()) / (chosen.std() + 1e-8)  # <- whitened
        ratio = torch.exp(distribution.log_prob(actions[part]) - logps[part])
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        policy = -torch.min(ratio * chosen, clipped * chosen).mean()  # <- pessimist
        entropy = distribution.entropy().mean()  # <- entropy
        loss = (
            policy + 0.5 * F.mse_loss(value, returns[part]) - 0.05 * entropy
        )  # <- entropy pessimist
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
