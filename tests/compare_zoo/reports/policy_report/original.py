# SPDX-License-Identifier: Apache-2.0
"""Roll out an actor-critic on a toy control task, greedy actions; prints returns and entropy."""
import sys

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(18)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.LayerNorm(24), nn.Tanh())
        self.actor = nn.Linear(24, 4)
        self.critic = nn.Linear(24, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


agent = ActorCritic()
nn.init.normal_(agent.body[1].weight, 1.0, 0.3)
nn.init.normal_(agent.body[1].bias, 0.0, 0.3)
nn.init.normal_(agent.actor.weight, std=0.7)
torch.save(agent.state_dict(), sys.argv[1])
agent.eval()

gen = torch.Generator().manual_seed(108)
dynamics = torch.randn(6, 6, generator=gen) * 0.3
push = torch.randn(4, 6, generator=gen)
losses = []
with torch.no_grad():
    for episode in range(4):
        obs = torch.randn(1, 6, generator=gen)
        total, entropies = 0.0, []
        for t in range(8):
            dist, value = agent(obs)
            action = dist.logits.argmax(-1)
            entropies.append(dist.entropy().item())
            obs = torch.tanh(obs @ dynamics + push[action])
            total += 1.0 - obs.pow(2).mean().item()
        losses.append(total)
        print(f"episode {episode}: return {total:.3f} entropy {sum(entropies) / 8:.3f}")
print(losses)
