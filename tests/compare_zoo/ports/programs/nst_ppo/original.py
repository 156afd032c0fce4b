# SPDX-License-Identifier: Apache-2.0
"""PPO update for a continuous policy on one stored rollout, in the manner of CleanRL."""
import sys

import numpy as np
import torch
import torch.nn as nn
from torch.distributions.normal import Normal

NUM_STEPS, NUM_ENVS, OBS, ACT = 16, 4, 6, 2
GAMMA, LAMBDA, CLIP, ENT_COEF, VF_COEF = 0.97, 0.9, 0.1, 0.02, 0.5


def layer_init(layer, std=np.sqrt(2)):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.normal_(layer.bias, std=0.1)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(OBS, 24)), nn.Tanh(),
                                    layer_init(nn.Linear(24, 24)), nn.Tanh(),
                                    layer_init(nn.Linear(24, 1), std=1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(OBS, 24)), nn.Tanh(),
                                        layer_init(nn.Linear(24, 24)), nn.Tanh(),
                                        layer_init(nn.Linear(24, ACT), std=0.5))
        self.actor_logstd = nn.Parameter(torch.full((1, ACT), -0.3))

    def get_value(self, x):
        return self.critic(x).flatten()

    def get_action_stats(self, x, action):
        mean = self.actor_mean(x)
        std = torch.exp(self.actor_logstd.expand_as(mean))
        probs = Normal(mean, std)
        return probs.log_prob(action).sum(1), probs.entropy().sum(1)  # <- entropy_sum


torch.manual_seed(1)
agent = Agent()
torch.save(agent.state_dict(), sys.argv[1])
rng = torch.Generator().manual_seed(8)
obs = torch.randn(NUM_STEPS + 1, NUM_ENVS, OBS, generator=rng)
actions = torch.randn(NUM_STEPS, NUM_ENVS, ACT, generator=rng)
rewards = torch.randn(NUM_STEPS, NUM_ENVS, generator=rng) + obs[:-1, :, 0]
dones = (torch.rand(NUM_STEPS + 1, NUM_ENVS, generator=rng) < 0.2).float()
drift = 0.2 * torch.randn(NUM_STEPS * NUM_ENVS, generator=rng)

with torch.no_grad():
    values = agent.get_value(obs.reshape(-1, OBS)).view(NUM_STEPS + 1, NUM_ENVS)
    flat = obs[:-1].reshape(-1, OBS)
    b_logprobs = agent.get_action_stats(flat, actions.reshape(-1, ACT))[0] + drift
    advantages = torch.zeros_like(rewards)
    lastgaelam = 0
    for t in reversed(range(NUM_STEPS)):
        nextnonterminal = 1.0 - dones[t + 1]  # <- episode_end
        delta = rewards[t] + GAMMA * values[t + 1] * nextnonterminal - values[t]  # <- episode_end
        lastgaelam = delta + GAMMA * LAMBDA * nextnonterminal * lastgaelam  # <- episode_end
        advantages[t] = lastgaelam
    returns = advantages + values[:-1]

b_obs, b_actions = obs[:-1].reshape(-1, OBS), actions.reshape(-1, ACT)
b_adv, b_returns, b_values = advantages.reshape(-1), returns.reshape(-1), values[:-1].reshape(-1)
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
losses = []
for update in range(4):
    lr = (1.0 - update / 5) * 3e-3  # <- anneal
    optimizer.param_groups[0]["lr"] = lr  # <- anneal
    mb = torch.arange(update % 2, NUM_STEPS * NUM_ENVS, 2)
    newlogprob, entropy = agent.get_action_stats(b_obs[mb], b_actions[mb])
    newvalue = agent.get_value(b_obs[mb])
    ratio = (newlogprob - b_logprobs[mb]).exp()
    adv = b_adv[mb]
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)  # <- adv_scope
    pg_loss1 = -adv * ratio  # <- adv_scope
    pg_loss2 = -adv * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)  # <- adv_scope
    pg_loss = torch.max(pg_loss1, pg_loss2).mean()
    v_loss_unclipped = (newvalue - b_returns[mb]) ** 2
    v_clipped = b_values[mb] + torch.clamp(newvalue - b_values[mb], -CLIP, CLIP)  # <- value_clip
    v_loss_clipped = (v_clipped - b_returns[mb]) ** 2  # <- value_clip
    v_loss = 0.5 * torch.max(v_loss_unclipped, v_loss_clipped).mean()  # <- value_clip
    loss = pg_loss - ENT_COEF * entropy.mean() + v_loss * VF_COEF  # <- entropy_sum
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- anneal
    losses.append(loss.item())
print(losses)
