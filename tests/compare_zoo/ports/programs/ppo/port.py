# SPDX-License-Identifier: Apache-2.0
"""The same update with weights in plain lists, environments first, advantages from a matrix of
discounts, the clip as a bound on the gain, entropy and gradients' norm from their formulas.
"""

import sys

import numpy as np
import torch

OBSERVED, CHOICES = 8, 5
BOUND = 0.2


def network(weights, x):
    for kernel, bias in weights[:-1]:
        x = torch.tanh(x @ kernel + bias)
    kernel, bias = weights[-1]
    return x @ kernel + bias


def networks_from(old):
    nets = {}
    for name in ("actor", "critic"):
        nets[name] = []
        for layer in (0, 2, 4):
            kernel = old[f"{name}.{layer}.weight"].T.clone().requires_grad_()
            nets[name].append((kernel, old[f"{name}.{layer}.bias"].clone().requires_grad_()))
    return nets


class Rollout:
    def __init__(self, seed=81, steps=12, envs=4):
        rng = np.random.default_rng(seed)
        shape, later = (steps, envs), (steps + 1, envs)
        observed = rng.standard_normal((*shape, OBSERVED), dtype=np.float32) * 3 + 1
        action = rng.integers(0, CHOICES, shape)
        logp = -rng.uniform(1.2, 2.0, shape).astype(np.float32)
        reward = rng.standard_normal(shape, dtype=np.float32)
        done = (rng.random(later) < 0.15).astype(np.float32)
        value = rng.standard_normal(later, dtype=np.float32) * np.float32(0.5)
        arrays = (observed, action, logp, reward, done, value)
        # an environment is a row from here on
        self.observed, self.action, self.logp, self.reward, self.done, self.value = (
            torch.tensor(array).transpose(0, 1) for array in arrays
        )

    def advantages(self, gamma=0.99, lam=0.95):
        alive = 1 - self.done[:, 1:]  # <- terminal
        residual = self.reward + gamma * alive * self.value[:, 1:]  # <- terminal
        residual = residual - self.value[:, :-1]
        steps = residual.shape[1]
        weights = torch.zeros(len(residual), steps, steps)
        for start in range(steps):
            weight = torch.ones(len(residual))
            for step in range(start, steps):
                weights[:, start, step] = weight
                weight = weight * gamma * lam * alive[:, step]  # <- discount terminal
        return torch.einsum("est,et->es", weights, residual)  # <- discount terminal

    def states(self):
        cells = self.observed.flatten(0, 1)
        variance, mean = torch.var_mean(cells, dim=0, correction=0)
        return ((self.observed - mean) / (variance + 1e-8).sqrt()).clip(-2.5, 2.5)  # <- observed


def policy_gain(logits, action, logp_before, advantage):
    logp = logits.log_softmax(-1)
    taken = logp[torch.arange(len(action)), action]
    advantage = advantage - advantage.mean()
    deviation = (advantage.square().sum() / (len(advantage) - 1)).sqrt()  # <- standardised
    advantage = advantage / (deviation + 1e-8)  # <- standardised
    limit = torch.where(advantage > 0, 1 + BOUND, 1 - BOUND) * advantage
    gain = torch.minimum((taken - logp_before).exp() * advantage, limit).mean()  # <- surrogate
    spread = -(logp.exp() * logp).sum(-1).mean()
    return gain, spread


def value_error(value, before, target):
    near = before + (value - before).clip(-BOUND, BOUND)
    errors = torch.stack([value - target, near - target]).square()
    return errors.amax(0).mean() / 2  # <- pessimistic


class Adam:
    def __init__(self, tensors):
        self.tensors, self.count = tensors, 0
        self.slow = [(torch.zeros_like(t), torch.zeros_like(t)) for t in tensors]

    @torch.no_grad()
    def apply(self, gradients, rate=5e-3, longest=0.5):
        length = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()  # <- clip
        shrink = min(1.0, longest / (float(length) + 1e-6))  # <- clip
        self.count += 1
        for t, g, (mean, square) in zip(self.tensors, gradients, self.slow):
            cut = g * shrink  # <- clip
            mean.lerp_(cut, 0.1)
            square.lerp_(cut * cut, 0.001)
            root = (square / (1 - 0.999**self.count)).sqrt()
            t.sub_(rate * mean / (1 - 0.9**self.count) / (root + 1e-5))


rollout = Rollout()
advantage = rollout.advantages()
target = advantage + rollout.value[:, :-1]
# the rows of a batch are numbered step by step, as they were played
table = [rollout.states(), rollout.action, rollout.logp, advantage, rollout.value[:, :-1], target]
table = [column.transpose(0, 1).flatten(0, 1) for column in table]
order = np.random.default_rng(82).permutation(48).reshape(3, 16)
nets = networks_from(torch.load(sys.argv[1]))
tensors = [tensor for net in nets.values() for pair in net for tensor in pair]
optimiser = Adam(tensors)
losses = []
for rows in order:
    state, action, logp, gained, before, wanted = (column[torch.tensor(rows)] for column in table)
    gain, spread = policy_gain(network(nets["actor"], state), action, logp, gained)
    error = value_error(network(nets["critic"], state).squeeze(1), before, wanted)
    loss = 0.5 * error - gain - 0.01 * spread  # <- entropy
    optimiser.apply(torch.autograd.grad(loss, tensors))
    losses.append(loss.item())
