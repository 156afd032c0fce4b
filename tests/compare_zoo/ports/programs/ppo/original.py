# SPDX-License-Identifier: Apache-2.0
"""PPO as Schulman et al. (2017) have it: generalised advantages of a fixed rollout, the clipped
surrogate, clipped values, a bonus for entropy, an actor and a critic with tanh.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

STEPS, ENVS, OBS, ACTIONS = 12, 4, 8, 5
GAMMA, LAMBDA, CLIP, ENT_COEF, VF_COEF, MAX_GRAD_NORM = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5


def layer_init(layer, std=2**0.5):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, 0.0)
    return layer


def mlp(outputs, std):
    return nn.Sequential(
        layer_init(nn.Linear(OBS, 32)),
        nn.Tanh(),
        layer_init(nn.Linear(32, 32)),
        nn.Tanh(),
        layer_init(nn.Linear(32, outputs), std),
    )


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = mlp(ACTIONS, 0.5), mlp(1, 1.0)

    def evaluate(self, obs, actions):
        dist = Categorical(logits=self.actor(obs))
        return dist.log_prob(actions), dist.entropy(), self.critic(obs).flatten()


def collect():
    rng = np.random.default_rng(81)
    f32 = np.float32
    rollout = {"obs": rng.standard_normal((STEPS, ENVS, OBS), dtype=f32) * 3 + 1}
    rollout["actions"] = rng.integers(0, ACTIONS, (STEPS, ENVS))
    rollout["logprobs"] = -rng.uniform(1.2, 2.0, (STEPS, ENVS)).astype(f32)
    rollout["rewards"] = rng.standard_normal((STEPS, ENVS), dtype=f32)
    rollout["dones"] = (rng.random((STEPS + 1, ENVS)) < 0.15).astype(f32)
    rollout["values"] = rng.standard_normal((STEPS + 1, ENVS), dtype=f32) * f32(0.5)
    return {key: torch.from_numpy(value) for key, value in rollout.items()}


def compute_gae(rewards, values, dones):
    advantages = torch.zeros_like(rewards)
    lastgaelam = 0
    for t in reversed(range(STEPS)):
        nonterminal = 1.0 - dones[t + 1]  # <- terminal
        delta = rewards[t] + GAMMA * values[t + 1] * nonterminal - values[t]  # <- terminal
        lastgaelam = delta + GAMMA * LAMBDA * nonterminal * lastgaelam  # <- terminal discount
        advantages[t] = lastgaelam
    return advantages, advantages + values[:-1]


def normalize(obs):
    flat = obs.reshape(-1, OBS)
    scaled = (obs - flat.mean(0)) / torch.sqrt(flat.var(0, unbiased=False) + 1e-8)  # <- observed
    return scaled.clamp(-2.5, 2.5)


rollout = collect()
obs = normalize(rollout["obs"])
advantages, returns = compute_gae(rollout["rewards"], rollout["values"], rollout["dones"])
b_obs, b_actions = obs.reshape(-1, OBS), rollout["actions"].reshape(-1)
b_logprobs, b_values = rollout["logprobs"].reshape(-1), rollout["values"][:-1].reshape(-1)
b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
torch.manual_seed(43)
agent = Agent()
torch.save(agent.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3, eps=1e-5)
shuffled = torch.from_numpy(np.random.default_rng(82).permutation(STEPS * ENVS))
losses = []
for inds in shuffled.chunk(3):
    newlogprob, entropy, newvalue = agent.evaluate(b_obs[inds], b_actions[inds])
    ratio = (newlogprob - b_logprobs[inds]).exp()
    mb_adv = b_advantages[inds]
    mb_adv = (mb_adv - mb_adv.mean()) / (mb_adv.std() + 1e-8)  # <- standardised

    pg_loss1 = -mb_adv * ratio
    pg_loss2 = -mb_adv * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
    pg_loss = torch.max(pg_loss1, pg_loss2).mean()  # <- surrogate

    v_unclipped = (newvalue - b_returns[inds]) ** 2
    v_change = torch.clamp(newvalue - b_values[inds], -CLIP, CLIP)
    v_clipped = (b_values[inds] + v_change - b_returns[inds]) ** 2
    v_loss = 0.5 * torch.max(v_unclipped, v_clipped).mean()  # <- pessimistic

    loss = pg_loss - ENT_COEF * entropy.mean() + VF_COEF * v_loss  # <- entropy
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)  # <- clip
    optimizer.step()  # <- clip
    losses.append(loss.item())
