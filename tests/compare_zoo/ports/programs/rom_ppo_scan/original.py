# SPDX-License-Identifier: Apache-2.0
"""PPO on a fixed continuous-control rollout, after CleanRL: GAE loop, clipped losses, annealed Adam."""
import sys

import numpy as np
import torch
import torch.nn as nn
from torch.distributions.normal import Normal

torch.set_num_threads(1)

NUM_STEPS, NUM_ENVS, OBS, ACT = 12, 4, 6, 3
GAMMA, LAMBDA, CLIP, ENT_COEF, VF_COEF, MAX_GRAD = 0.97, 0.9, 0.2, 0.02, 0.5, 0.4
UPDATES, LR = 5, 0.01


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(OBS, 16)), nn.Tanh(), layer_init(nn.Linear(16, 16)), nn.Tanh(),
            layer_init(nn.Linear(16, 1), std=1.0),
        )
        self.actor_mean = nn.Sequential(
            layer_init(nn.Linear(OBS, 16)), nn.Tanh(), layer_init(nn.Linear(16, 16)), nn.Tanh(),
            layer_init(nn.Linear(16, ACT), std=0.3),
        )
        self.actor_logstd = nn.Parameter(torch.full((1, ACT), -0.2))

    def get_value(self, x):
        return self.critic(x).squeeze(-1)

    def evaluate(self, x, action):
        mean = self.actor_mean(x)
        dist = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        entropy = dist.entropy().sum(-1)  # <- entropy_per_dim
        return dist.log_prob(action).sum(-1), entropy, self.get_value(x)


def rollout(agent):
    g = torch.Generator().manual_seed(41)
    obs = torch.randn(NUM_STEPS + 1, NUM_ENVS, OBS, generator=g)
    noise = torch.randn(NUM_STEPS, NUM_ENVS, ACT, generator=g)
    rewards = torch.randn(NUM_STEPS, NUM_ENVS, generator=g) + obs[:-1, :, 0]
    dones = (torch.rand(NUM_STEPS + 1, NUM_ENVS, generator=g) < 0.2).float()  # dones[t]: obs[t] begins an episode
    with torch.no_grad():
        actions = agent.actor_mean(obs[:-1]) + noise * agent.actor_logstd.exp()
        logprobs, _, values = agent.evaluate(obs[:-1], actions)
        next_value = agent.get_value(obs[-1])
    return obs[:-1], actions, logprobs, rewards, dones, values, next_value


def compute_gae(rewards, dones, values, next_value):
    advantages = torch.zeros_like(rewards)
    lastgaelam = 0
    for t in reversed(range(NUM_STEPS)):
        nextnonterminal = 1.0 - dones[t + 1]  # <- done_of_same_step
        nextvalues = next_value if t == NUM_STEPS - 1 else values[t + 1]
        delta = rewards[t] + GAMMA * nextvalues * nextnonterminal - values[t]  # <- done_of_same_step
        lastgaelam = delta + GAMMA * LAMBDA * nextnonterminal * lastgaelam  # <- done_of_same_step
        advantages[t] = lastgaelam
    return advantages


torch.manual_seed(9)
agent = Agent()
torch.save(agent.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(agent.parameters(), lr=LR, eps=1e-5)

obs, actions, old_logprobs, rewards, dones, values, next_value = rollout(agent)
advantages = compute_gae(rewards, dones, values, next_value)  # <- done_of_same_step
returns = advantages + values
b_obs, b_actions = obs.reshape(-1, OBS), actions.reshape(-1, ACT)
b_logprobs, b_advantages, b_returns, b_values = (t.reshape(-1) for t in (old_logprobs, advantages, returns, values))

order = torch.Generator().manual_seed(6)
losses = []
for update in range(1, UPDATES + 1):
    frac = 1.0 - (update - 1.0) / UPDATES  # <- anneal_early
    optimizer.param_groups[0]["lr"] = frac * LR  # <- anneal_early
    mb = torch.randperm(NUM_STEPS * NUM_ENVS, generator=order)[:32]

    newlogprob, entropy, newvalue = agent.evaluate(b_obs[mb], b_actions[mb])
    ratio = (newlogprob - b_logprobs[mb]).exp()
    mb_adv = b_advantages[mb]
    mb_adv = (mb_adv - mb_adv.mean()) / (mb_adv.std() + 1e-8)  # <- population_std
    pg_loss1 = -mb_adv * ratio  # <- population_std
    pg_loss2 = -mb_adv * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)  # <- population_std
    pg_loss = torch.max(pg_loss1, pg_loss2).mean()

    v_unclipped = (newvalue - b_returns[mb]) ** 2
    v_clipped = b_values[mb] + torch.clamp(newvalue - b_values[mb], -CLIP, CLIP)
    v_loss = 0.5 * torch.max(v_unclipped, (v_clipped - b_returns[mb]) ** 2).mean()
    entropy_loss = entropy.mean()  # <- entropy_per_dim
    loss = pg_loss - ENT_COEF * entropy_loss + v_loss * VF_COEF  # <- entropy_per_dim

    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD)  # <- clip_apart
    optimizer.step()  # <- anneal_early
    losses.append(loss.item())
print(losses)
