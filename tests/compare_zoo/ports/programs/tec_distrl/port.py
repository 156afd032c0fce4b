# SPDX-License-Identifier: Apache-2.0
"""Categorical DQN in the new RL library: functions over parameter tuples, hat kernel."""

import sys
from typing import NamedTuple

import torch

torch.set_num_threads(1)


class Spec(NamedTuple):
    atoms: int = 21
    low: float = -4.0
    high: float = 6.0
    actions: int = 4
    obs: int = 10
    gamma: float = 0.95
    n: int = 3
    polyak: float = 0.8


class Net(NamedTuple):
    w1: torch.Tensor
    b1: torch.Tensor
    w2: torch.Tensor
    b2: torch.Tensor
    heads: torch.Tensor
    heads_b: torch.Tensor


S = Spec()
GRID = torch.linspace(S.low, S.high, S.atoms)


def swish(x):
    return x * torch.sigmoid(x)


def atom_logits(net, obs):
    h = swish(swish(obs @ net.w1 + net.b1) @ net.w2 + net.b2)
    streams = torch.einsum("bh,shk->bsk", h, net.heads) + net.heads_b
    base, adv = streams[:, :1], streams[:, 1:]
    return base + (adv - adv.sum(1, keepdim=True) / S.actions)  # <- dueling_mean


def distribution(net, obs):
    return torch.softmax(atom_logits(net, obs), -1)


@torch.no_grad()
def bellman_target(net, lagged, rew, nxt, alive):
    values = torch.einsum("bak,k->ba", distribution(net, nxt), GRID)  # <- double_choice
    choice = torch.nn.functional.one_hot(values.argmax(1), S.actions).float()  # <- double_choice
    p = torch.einsum("ba,bak->bk", choice, distribution(lagged, nxt))  # <- double_choice
    reach = S.gamma**S.n * alive  # <- step_discount
    moved = (rew[:, None] + reach[:, None] * GRID).clamp(S.low, S.high)  # <- step_discount
    width = (S.high - S.low) / (S.atoms - 1)
    hat = (1 - (moved[:, :, None] - GRID).abs() / width).clamp(min=0)
    return torch.einsum("bj,bjk->bk", p, hat)


def objective(net, goal, obs, act, weight):
    logits = atom_logits(net, obs)
    chosen = logits.take_along_dim(act[:, None, None].expand(-1, 1, S.atoms), 1).squeeze(1)
    per = torch.logsumexp(chosen, 1) * goal.sum(1) - (goal * chosen).sum(1)
    return torch.dot(weight, per) / len(per)


def restore(path):
    sd = torch.load(path, weights_only=True)
    heads = torch.cat([sd["value.weight"][None], sd["advantage.weight"].unflatten(0, (4, -1))])
    bias = torch.cat([sd["value.bias"][None], sd["advantage.bias"].view(4, -1)])
    return Net(
        sd["body.0.weight"].t(),
        sd["body.0.bias"],
        sd["body.2.weight"].t(),
        sd["body.2.bias"],
        heads.transpose(1, 2),
        bias,
    )


net = Net(*(p.clone() for p in restore(sys.argv[1])))
lagged = net
square = [torch.zeros_like(p) for p in net]
average = [torch.zeros_like(p) for p in net]
g = torch.Generator().manual_seed(21)
losses = []
for _ in range(5):
    obs, nxt = torch.randn(2, 12, S.obs, generator=g) * 1.5
    act = torch.randint(0, S.actions, (12,), generator=g)
    rew = torch.randn(12, S.n, generator=g) @ (S.gamma ** torch.arange(S.n))
    alive = 1.0 - (torch.rand(12, generator=g) < 0.25).float()
    weight = torch.rand(12, generator=g) + 0.5

    goal = bellman_target(net, lagged, rew, nxt, alive)
    live = Net(*(p.detach().requires_grad_() for p in net))
    loss = objective(live, goal, obs, act, weight / weight.amax())
    grads = torch.autograd.grad(loss, live)
    square = [0.9 * s + 0.1 * d * d for s, d in zip(square, grads)]
    average = [0.9 * a + 0.1 * d for a, d in zip(average, grads)]
    second = [s - a * a for s, a in zip(square, average)]  # <- centred
    net = Net(
        *(
            p - 0.004 * d / (v.sqrt() + 1e-3)  # <- centred
            for p, d, v in zip(net, grads, second)
        )
    )
    lagged = Net(
        *(
            torch.lerp(new, old, S.polyak)  # <- target_average
            for new, old in zip(net, lagged)
        )
    )
    losses.append(loss.item())
print(losses)
