# SPDX-License-Identifier: Apache-2.0
"""Twin delayed policy gradient with stacked critics and pure update functions over tuples."""

import sys
from typing import NamedTuple

import torch
from torch import Tensor

LIMIT, GAMMA, BLEND, N = 2.0, 0.9, 0.1, 24  # <- soft_target


class Net(NamedTuple):
    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor


class Slots(NamedTuple):
    first: tuple
    second: tuple
    count: int


def policy_from(sd):
    return Net(sd["l1.weight"].T, sd["l1.bias"], sd["l2.weight"].T, sd["l2.bias"])


def twins_from(sd):
    w1 = torch.stack([sd["l1.weight"].T, sd["l4.weight"].T])
    w2 = torch.stack([sd["l2.weight"].T, sd["l5.weight"].T])
    b1 = torch.stack([sd["l1.bias"], sd["l4.bias"]]).unsqueeze(1)
    b2 = torch.stack([sd["l2.bias"], sd["l5.bias"]]).unsqueeze(1)
    return Net(w1, b1, w2, b2)


def mlp(net, x):
    return (x @ net.w1 + net.b1).clamp(min=0) @ net.w2 + net.b2


def act(net, s):
    return mlp(net, s).tanh() * LIMIT  # <- action_range


def value(net, s, a):
    """(2, N): both critics at once."""
    return mlp(net, torch.cat([s, a], -1).expand(2, -1, -1)).squeeze(-1)


def backup(slow_pi, slow_q, s2, r, alive, eps):
    a2 = act(slow_pi, s2) + eps.clip(-0.5, 0.5)
    low = value(slow_q, s2, a2.clip(-LIMIT, LIMIT)).amin(0)  # <- twin_minimum
    return r[:, 0] + GAMMA * alive[:, 0] * low  # <- terminal_mask


def huber(diff):
    size = diff.abs()
    return torch.where(size < 1, 0.5 * diff * diff, size - 0.5)


def blank(net):
    return Slots(tuple(map(torch.zeros_like, net)), tuple(map(torch.zeros_like, net)), 0)


def adam(net, slots, loss_of):
    live = Net(*(w.detach().requires_grad_() for w in net))
    loss = loss_of(live)
    grads = torch.autograd.grad(loss, live)
    n = slots.count + 1
    m = tuple(0.9 * a + 0.1 * g for a, g in zip(slots.first, grads))
    v = tuple(0.999 * a + 0.001 * g.square() for a, g in zip(slots.second, grads))
    c1, c2 = 1 - 0.9**n, 1 - 0.999**n
    new = [w.detach() - 1e-2 * (a / c1) / ((b / c2).sqrt() + 1e-8) for w, a, b in zip(live, m, v)]
    return Net(*new), Slots(m, v, n), loss.item()


def drift(slow, net):
    return Net(*(torch.lerp(a, b, BLEND) for a, b in zip(slow, net)))  # <- soft_target


saved = torch.load(sys.argv[1], weights_only=True)
pi, slow_pi = policy_from(saved["actor"]), policy_from(saved["actor_target"])
q, slow_q = twins_from(saved["critic"]), twins_from(saved["critic_target"])
pi_slots, q_slots = blank(pi), blank(q)

rng = torch.Generator().manual_seed(47)
losses = []
for it in range(5):
    s = torch.randn(N, 7, generator=rng)
    a = torch.randn(N, 2, generator=rng).clip(-LIMIT, LIMIT)
    s2 = torch.randn(N, 7, generator=rng)
    r = torch.randn(N, 1, generator=rng) * 1.5
    alive = (torch.rand(N, 1, generator=rng) < 0.75).float()
    eps = torch.randn(N, 2, generator=rng) * 0.4
    goal = backup(slow_pi, slow_q, s2, r, alive, eps)
    q, q_slots, cost = adam(q, q_slots, lambda t: huber(value(t, s, a) - goal).sum() / N)
    losses.append(cost)
    if it % 2 == 1:  # <- policy_delay
        regret = lambda t: -value(q, s, act(t, s))[0].mean()
        pi, pi_slots, _ = adam(pi, pi_slots, regret)  # <- policy_delay
        slow_pi, slow_q = drift(slow_pi, pi), drift(slow_q, q)
print(losses)
