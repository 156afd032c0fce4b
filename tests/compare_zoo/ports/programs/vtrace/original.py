# SPDX-License-Identifier: Apache-2.0
"""The learner of IMPALA (Espeholt et al., 2018): an agent with an LSTM that is reset where an episode
ends, V-trace from the actors' logits, policy gradient, baseline and entropy, RMSProp.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

OBSERVED, ACTIONS, HIDDEN, UNROLL, BATCH = 6, 4, 10, 8, 3
DISCOUNT, BASELINE_COST, ENTROPY_COST, CLIP = 0.95, 0.5, 0.01, 40.0


class AtariNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(OBSERVED, HIDDEN)
        self.core = nn.LSTM(HIDDEN + ACTIONS + 1, HIDDEN)
        self.policy = nn.Linear(HIDDEN, ACTIONS)
        self.baseline = nn.Linear(HIDDEN, 1)

    def forward(self, inputs):
        x = F.relu(self.fc(inputs["frame"]))
        one_hot = F.one_hot(inputs["last_action"], ACTIONS).float()
        clipped_reward = torch.clamp(inputs["reward"], -1, 1)  # <- reward
        core_input = torch.cat([x, clipped_reward.unsqueeze(-1), one_hot], dim=-1)
        state = (torch.zeros(1, BATCH, HIDDEN), torch.zeros(1, BATCH, HIDDEN))
        outputs = []
        for frame, not_done in zip(core_input.unbind(), (~inputs["done"]).float()):
            state = tuple(not_done.view(1, -1, 1) * s for s in state)  # <- reset
            output, state = self.core(frame.unsqueeze(0), state)  # <- reset forget
            outputs.append(output)
        core_output = torch.cat(outputs)
        return self.policy(core_output), self.baseline(core_output).squeeze(-1)


def action_log_probs(logits, actions):
    return -F.nll_loss(
        F.log_softmax(logits.flatten(0, 1), dim=-1), actions.flatten(), reduction="none"
    ).view_as(actions)


@torch.no_grad()
def vtrace(log_rhos, discounts, rewards, values, bootstrap_value):
    rhos = torch.exp(log_rhos)
    clipped_rhos = torch.clamp(rhos, max=1.0)  # <- clipped
    cs = torch.clamp(rhos, max=1.0)  # <- clipped
    values_t_plus_1 = torch.cat([values[1:], bootstrap_value.unsqueeze(0)], dim=0)
    deltas = clipped_rhos * (rewards + discounts * values_t_plus_1 - values)
    acc = torch.zeros_like(bootstrap_value)
    result = []
    for t in range(discounts.shape[0] - 1, -1, -1):
        acc = deltas[t] + discounts[t] * cs[t] * acc  # <- trace
        result.append(acc)
    result.reverse()
    vs = torch.stack(result) + values
    vs_t_plus_1 = torch.cat([vs[1:], bootstrap_value.unsqueeze(0)], dim=0)  # <- next
    pg_advantages = clipped_rhos * (rewards + discounts * vs_t_plus_1 - values)  # <- next stopped
    return vs, pg_advantages


def loss_of(model, batch):
    logits, baseline = model(batch)
    bootstrap_value = baseline[-1]
    actions, done = batch["action"][1:], batch["done"][1:]
    rewards = torch.clamp(batch["reward"][1:], -1, 1)
    behaviour, logits, baseline = batch["logits"][:-1], logits[:-1], baseline[:-1]
    log_probs = action_log_probs(logits, actions)
    log_rhos = log_probs - action_log_probs(behaviour, actions)
    discounts = (~done).float() * DISCOUNT
    vs, advantages = vtrace(log_rhos, discounts, rewards, baseline, bootstrap_value)
    pg_loss = torch.sum(-log_probs * advantages)  # <- stopped
    baseline_loss = 0.5 * torch.sum((vs - baseline) ** 2)  # <- half
    policy, log_policy = F.softmax(logits, dim=-1), F.log_softmax(logits, dim=-1)
    entropy_loss = torch.sum(policy * log_policy)  # <- entropy
    return pg_loss + BASELINE_COST * baseline_loss + ENTROPY_COST * entropy_loss  # <- entropy half


def rollout(rng):
    shape = (UNROLL + 1, BATCH)
    arrays = {
        "frame": rng.normal(size=(*shape, OBSERVED)).astype(np.float32),
        "reward": rng.normal(0, 1.5, shape).astype(np.float32),
        "done": rng.random(shape) < 0.2,
        "last_action": rng.integers(0, ACTIONS, shape),
        "action": rng.integers(0, ACTIONS, shape),
        "logits": rng.normal(size=(*shape, ACTIONS)).astype(np.float32),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


torch.manual_seed(229)
model = AtariNet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, eps=0.01, alpha=0.99)
rng = np.random.default_rng(233)
losses = []
for _ in range(3):
    loss = loss_of(model, rollout(rng))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()  # <- inside
    losses.append(loss.item())
