# SPDX-License-Identifier: Apache-2.0
"""The same Soft Actor-Critic as one has it in JAX: pure functions of trees of parameters, both critics
as one with an axis for the two, a train state for each of the optimizers.
"""

import sys
from dataclasses import dataclass, replace

import numpy as np
import torch

DISCOUNT, STEP_SIZE, SCALE, ACTION_DIM = 0.99, 0.05, 2.0, 3


@dataclass(frozen=True)
class TrainState:
    params: dict
    rate: float
    mu: dict
    nu: dict
    step: int = 0

    @classmethod
    def create(cls, params, rate):
        zeros = {name: torch.zeros_like(value) for name, value in params.items()}
        return cls(params, rate, zeros, dict(zeros))

    def apply_gradients(self, grads):
        t = self.step + 1
        mu = {n: 0.9 * self.mu[n] + (1 - 0.9) * g for n, g in grads.items()}
        nu = {n: 0.999 * self.nu[n] + (1 - 0.999) * g.square() for n, g in grads.items()}
        params = {}
        for name, value in self.params.items():
            ratio = (mu[name] / (1 - 0.9**t)) / ((nu[name] / (1 - 0.999**t)).sqrt() + 1e-8)
            params[name] = value - self.rate * ratio
        return replace(self, params=params, mu=mu, nu=nu, step=t)


def grad_of(function, params, *args):
    params = {name: value.detach().requires_grad_() for name, value in params.items()}
    value, extra = function(params, *args)
    grads = torch.autograd.grad(value, list(params.values()))
    return value.detach(), extra, dict(zip(params, grads))


def critic(params, observations, actions):
    """Values of the two critics: 2, batch."""
    x = torch.cat((observations, actions), dim=-1).expand(2, -1, -1)
    x = torch.relu(torch.baddbmm(params["b0"][:, None], x, params["w0"]))
    x = torch.relu(torch.baddbmm(params["b1"][:, None], x, params["w1"]))
    return torch.baddbmm(params["b2"][:, None], x, params["w2"])[..., 0]


def policy(params, observations):
    x = torch.relu(observations @ params["w0"] + params["b0"])
    x = torch.relu(x @ params["w1"] + params["b1"])
    loc, raw = torch.tensor_split(x @ params["w2"] + params["b2"], 2, dim=-1)
    log_scale = -5.0 + 3.5 * (torch.tanh(raw) + 1.0)  # <- deviation
    return loc, log_scale


def sample(params, observations, noise):
    loc, log_scale = policy(params, observations)
    unsquashed = loc + torch.exp(log_scale) * noise
    log_prob = -0.5 * noise**2 - log_scale - 0.5 * np.log(2 * np.pi)
    squashed = torch.tanh(unsquashed)
    log_prob = log_prob - torch.log(SCALE * (1.0 - squashed**2) + 1e-6)  # <- squash
    return SCALE * squashed, log_prob.sum(-1)


def critic_loss(params, batch, wanted):
    values = critic(params, batch["obs"], batch["act"])
    errors = values - wanted
    return (errors**2).mean(-1).sum(), None  # <- half


def actor_loss(params, critic_params, temperature, observations, noise):
    actions, log_prob = sample(params, observations, noise)
    worst = critic(critic_params, observations, actions).amin(0)
    return (temperature * log_prob - worst).mean(), log_prob.detach()


def temperature_loss(params, log_prob, target_entropy=-3.0):
    return -(params["log"].exp() * (log_prob + target_entropy)).mean(), None  # <- goal


def update(states, targets, batch, noises):
    actor, twins, alpha = states
    temperature = float(alpha.params["log"].exp())
    actions, log_prob = sample(actor.params, batch["next_obs"], noises[0])
    following = critic(targets, batch["next_obs"], actions).amin(0)  # <- twins
    following = following - temperature * log_prob  # <- entropy
    wanted = batch["rew"] + DISCOUNT * (1.0 - batch["done"]) * following  # <- terminal

    critic_value, _, grads = grad_of(critic_loss, twins.params, batch, wanted)
    twins = twins.apply_gradients(grads)
    actor_value, log_prob, grads = grad_of(
        actor_loss, actor.params, twins.params, temperature, batch["obs"], noises[1]
    )
    actor = actor.apply_gradients(grads)
    alpha_value, _, grads = grad_of(temperature_loss, alpha.params, log_prob)
    alpha = alpha.apply_gradients(grads)
    targets = {n: torch.lerp(targets[n], twins.params[n], STEP_SIZE) for n in targets}  # <- polyak
    return (actor, twins, alpha), targets, (critic_value, actor_value, alpha_value)


def load(path):
    old = torch.load(path)

    def critics(first, second):
        params = {}
        for i in range(3):
            layers = [
                (old[f"{q}.fc{i + 1}.weight"], old[f"{q}.fc{i + 1}.bias"]) for q in (first, second)
            ]
            params[f"w{i}"] = torch.stack([weight.T for weight, _ in layers])
            params[f"b{i}"] = torch.stack([bias for _, bias in layers])
        return params

    actor = {}
    for i in range(2):
        actor[f"w{i}"] = old[f"actor.fc{i + 1}.weight"].T
        actor[f"b{i}"] = old[f"actor.fc{i + 1}.bias"]
    heads = ("actor.fc_mean", "actor.fc_logstd")
    actor["w2"] = torch.cat([old[f"{head}.weight"].T for head in heads], dim=1)
    actor["b2"] = torch.cat([old[f"{head}.bias"] for head in heads])
    targets = critics("qf1_target", "qf2_target")
    return actor, critics("qf1", "qf2"), targets, {"log": old["log_alpha"]}


def replay_buffer(rng, size=100, obs=11):
    return {
        "obs": rng.standard_normal((size, obs)),
        "act": rng.uniform(-SCALE, SCALE, (size, ACTION_DIM)),
        "rew": rng.standard_normal(size),
        "next_obs": rng.standard_normal((size, obs)),
        "done": rng.random(size) < 0.25,
    }


actor, twins, targets, alpha = load(sys.argv[1])
states = (
    TrainState.create(actor, 3e-3),
    TrainState.create(twins, 1e-2),
    TrainState.create(alpha, 1e-2),
)
rng = np.random.default_rng(52)
replay = replay_buffer(rng)
losses = []
for _ in range(3):
    rows = rng.integers(0, 100, 24)
    batch = {n: torch.tensor(a[rows], dtype=torch.float32) for n, a in replay.items()}
    noises = torch.tensor(rng.standard_normal((2, 24, ACTION_DIM), dtype=np.float32))
    states, targets, values = update(states, targets, batch, noises)
    losses.extend(loss.item() for loss in values)
