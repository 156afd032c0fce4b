# SPDX-License-Identifier: Apache-2.0
"""Double DQN as pure functions: the state goes in and out of one step, returns are made for all starts at once."""
import sys
from typing import NamedTuple

import torch

torch.set_num_threads(1)

GAMMA, HORIZON, POLYAK, RATE, OBS, ACTIONS, SIZE, BATCH = 0.97, 3, 0.8, 5e-3, 6, 4, 96, 20


class Norm(NamedTuple):
    total: float
    mean: torch.Tensor
    spread: torch.Tensor  # the sum of squared distances to the mean


class State(NamedTuple):
    online: dict
    frozen: dict
    mu: dict
    nu: dict
    count: int
    norm: Norm


def restore(path):
    sd = torch.load(path)
    w = {
        "w1": sd["body.0.weight"].T, "b1": sd["body.0.bias"],
        "w2": sd["body.2.weight"].T, "b2": sd["body.2.bias"],
        # value in column 0, advantages after it
        "w3": torch.cat([sd["value.weight"], sd["advantage.weight"]]).T,
        "b3": torch.cat([sd["value.bias"], sd["advantage.bias"]]),
    }
    zeros = lambda: {k: torch.zeros_like(v) for k, v in w.items()}
    norm = Norm(1e-2, torch.zeros(OBS), torch.ones(OBS) * 1e-2)
    return State({k: v.clone() for k, v in w.items()}, {k: v.clone() for k, v in w.items()}, zeros(), zeros(), 0, norm)


def elu(x):
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))


def q_values(w, obs):
    h = elu(elu(obs @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"])
    both = h @ w["w3"] + w["b3"]
    value, adv = both[:, :1], both[:, 1:]
    return value + (adv - adv.mean(1, keepdim=True))  # <- dueling_mean


def observe(norm, obs):
    n = obs.shape[0]
    total = norm.total + n
    step = obs.mean(0) - norm.mean
    inner = (obs - obs.mean(0)).square().sum(0)
    spread = norm.spread + inner + step * step * (norm.total * n / total)  # <- obs_merge
    return Norm(total, norm.mean + step * (n / total), spread)


def whiten(norm, obs):
    return torch.clip((obs - norm.mean) * torch.rsqrt(norm.spread / norm.total + 1e-8), -5.0, 5.0)


def experience():
    g = torch.Generator().manual_seed(9)
    path = 0.3 * torch.cumsum(torch.randn(SIZE + 1, OBS, generator=g), 0) + 1.0
    act = torch.randint(0, ACTIONS, (SIZE,), generator=g)
    rew = torch.randn(SIZE, generator=g) + torch.where(act == 1, 0.5, 0.0)
    end = torch.rand(SIZE, generator=g) < 0.15
    # windows[s, k]: reward k steps after start s
    windows, ends = rew.unfold(0, HORIZON, 1), end.unfold(0, HORIZON, 1).float()
    alive = torch.cumprod(torch.cat([torch.ones(len(ends), 1), 1 - ends], 1), 1)  # <- nstep_done
    powers = GAMMA ** torch.arange(HORIZON)
    returns = (windows * powers * alive[:, :-1]).sum(1)  # <- nstep_done
    rest = alive[:, -1] * GAMMA**HORIZON
    while True:
        i = torch.randint(0, SIZE - HORIZON, (BATCH,), generator=g)
        yield path[i], act[i], returns[i], path[i + HORIZON], rest[i]


def huber(error):
    size = error.abs()
    small = size.clamp(max=1.0)
    return (0.5 * small**2 + (size - small)).mean()


def adam(w, grads, mu, nu, count):
    new_w, new_mu, new_nu = {}, {}, {}
    for k in w:
        g = grads[k].clamp(-1.0, 1.0)
        new_mu[k] = 0.9 * mu[k] + 0.1 * g
        new_nu[k] = 0.999 * nu[k] + 0.001 * g * g
        m_hat = new_mu[k] / (1 - 0.9**count)
        v_hat = new_nu[k] / (1 - 0.999**count)  # <- adam_bias
        new_w[k] = w[k] - RATE * m_hat / (torch.sqrt(v_hat) + 1e-5)
    return new_w, new_mu, new_nu


def train_step(state, batch):
    obs, act, ret, later, rest = batch
    norm = observe(state.norm, obs)
    obs, later = whiten(norm, obs), whiten(norm, later)
    pick = torch.nn.functional.one_hot(q_values(state.online, later).argmax(1), ACTIONS)
    goal = ret + rest * (q_values(state.frozen, later) * pick).sum(1)
    leaves = {k: v.detach().requires_grad_() for k, v in state.online.items()}
    q = (q_values(leaves, obs) * torch.nn.functional.one_hot(act, ACTIONS)).sum(1)
    loss = huber(q - goal)
    grads = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))
    online, mu, nu = adam(state.online, grads, state.mu, state.nu, state.count + 1)
    frozen = {k: POLYAK * old + (1 - POLYAK) * online[k] for k, old in state.frozen.items()}  # <- target_order
    return State(online, frozen, mu, nu, state.count + 1, norm), loss.item()


state, source = restore(sys.argv[1]), experience()
losses = []
for _ in range(5):
    state, value = train_step(state, next(source))
    losses.append(value)
print(losses)
