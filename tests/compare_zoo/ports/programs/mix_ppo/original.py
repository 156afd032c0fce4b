# SPDX-License-Identifier: Apache-2.0
"""PPO with GAE on recorded rollouts, in the manner of a single-file implementation."""

import sys

import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical

NUM_STEPS, NUM_ENVS, OBS, ACTIONS = 12, 4, 6, 3
gamma, gae_lambda = 0.95, 0.9  # <- lambda_mix
clip_coef, ent_coef, vf_coef = 0.1, 0.02, 0.5  # <- value_half


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(OBS, 16), nn.Tanh(), nn.Linear(16, 1))
        self.actor = nn.Sequential(nn.Linear(OBS, 16), nn.Tanh(), nn.Linear(16, ACTIONS))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.orthogonal_(m.weight, 1.4)
                nn.init.normal_(m.bias, std=0.1)

    def get_value(self, x):
        return self.critic(x)

    def evaluate(self, x, action):
        probs = Categorical(logits=self.actor(x))
        return probs.log_prob(action), probs.entropy(), self.critic(x)


torch.manual_seed(14)
agent = Agent()
torch.save(agent.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(37)
obs = torch.randn(NUM_STEPS, NUM_ENVS, OBS, generator=gen)
next_obs = torch.randn(NUM_ENVS, OBS, generator=gen)
actions = torch.randint(0, ACTIONS, (NUM_STEPS, NUM_ENVS), generator=gen)
rewards = torch.randn(NUM_STEPS, NUM_ENVS, generator=gen)
dones = (torch.rand(NUM_STEPS + 1, NUM_ENVS, generator=gen) < 0.2).float()
order = torch.randperm(NUM_STEPS * NUM_ENVS, generator=gen)

with torch.no_grad():
    logprobs, _, values = agent.evaluate(obs, actions)
    values = values.squeeze(-1)
    next_value = agent.get_value(next_obs).reshape(1, -1)
    advantages = torch.zeros_like(rewards)
    lastgaelam = 0
    for t in reversed(range(NUM_STEPS)):
        nextnonterminal = 1.0 - dones[t + 1]  # <- done_shift
        nextvalues = next_value if t == NUM_STEPS - 1 else values[t + 1]
        delta = rewards[t] + gamma * nextvalues * nextnonterminal - values[t]  # <- done_shift
        carry = gamma * gae_lambda * nextnonterminal  # <- done_shift lambda_mix
        lastgaelam = delta + carry * lastgaelam  # <- lambda_mix
        advantages[t] = lastgaelam
    returns = advantages + values

b_obs, b_actions = obs.reshape(-1, OBS), actions.reshape(-1)
b_logprobs, b_advantages = logprobs.reshape(-1), advantages.reshape(-1)
b_returns, b_values = returns.reshape(-1), values.reshape(-1)

optimizer = torch.optim.Adam(agent.parameters(), lr=2e-2, eps=1e-5)
losses = []
for start in range(0, NUM_STEPS * NUM_ENVS, 12):
    mb = order[start : start + 12]
    newlogprob, entropy, newvalue = agent.evaluate(b_obs[mb], b_actions[mb])
    ratio = (newlogprob - b_logprobs[mb]).exp()
    adv = b_advantages[mb]
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)  # <- advantage_norm

    pg_loss1 = -adv * ratio  # <- pessimistic
    pg_loss2 = -adv * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)  # <- pessimistic
    pg_loss = torch.max(pg_loss1, pg_loss2).mean()  # <- pessimistic

    newvalue = newvalue.view(-1)
    v_loss_unclipped = (newvalue - b_returns[mb]) ** 2
    v_clipped = b_values[mb] + torch.clamp(newvalue - b_values[mb], -clip_coef, clip_coef)
    v_loss_clipped = (v_clipped - b_returns[mb]) ** 2
    v_loss = 0.5 * torch.max(v_loss_unclipped, v_loss_clipped).mean()  # <- value_half

    loss = pg_loss - ent_coef * entropy.mean() + v_loss * vf_coef  # <- value_half
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()
    losses.append(loss.item())
print(losses)
