# SPDX-License-Identifier: Apache-2.0
"""PCD in functional form: (params, trace, particles) go in, new ones come out."""
import sys
from typing import NamedTuple
import torch
from torch.func import grad, vmap

torch.set_num_threads(1)


class State(NamedTuple):
    net: tuple              # (w, b, tensor, tensor bias, readout)
    prec: torch.Tensor      # log precisions
    trace: tuple            # momentum of net, empty before the first step
    pool: torch.Tensor      # kept particles


def energy(net, prec, x):
    """Energy of a single point."""
    w, b, t, tb, r = net
    h = torch.tanh(w @ x + b)
    m = torch.einsum("kij,i,j->k", t, h, h) + tb
    return (torch.dot(r, torch.log1p(m.exp()))  # <- raw_precision
            + 0.5 * torch.dot(prec.exp(), x ** 2))  # <- raw_precision


energies = vmap(energy, (None, None, 0))
force = vmap(grad(energy, argnums=2), (None, None, 0))


def sample(net, prec, x, kicks, size=0.05):
    for kick in kicks:
        x = (x - size * force(net, prec, x).clamp(-1, 1)  # <- noise_scale
             + 0.3 * (2 * size) ** 0.5 * kick)  # <- noise_scale
    return x


def contrast(net, prec, pos, neg):
    return -torch.nn.functional.logsigmoid(
        energies(net, prec, neg) - energies(net, prec, pos)).mean()


def penalty(net, prec, pos, neg):
    both = energies(net, prec, torch.cat((pos, neg)))
    return 0.2 * (both * both).mean()  # <- penalty_factor


def train_step(s, k, pos, slots, kicks):
    neg = sample(s.net, s.prec, s.pool[slots], kicks)  # <- pool_stale
    pool = s.pool.index_copy(0, slots, neg)  # <- pool_stale
    g1, v1 = torch.func.grad_and_value(contrast, argnums=(0, 1))(s.net, s.prec, pos, neg)
    g2, v2 = torch.func.grad_and_value(penalty, argnums=(0, 1))(s.net, s.prec, pos, neg)
    g_net = tuple(a + b for a, b in zip(g1[0], g2[0]))
    trace = tuple(0.9 * t + g for t, g in zip(s.trace, g_net)) if s.trace else g_net
    net = tuple(p - 0.05 * t for p, t in zip(s.net, trace))
    prec = s.prec - 0.02 * (g1[1] + g2[1]) if k % 2 else s.prec  # <- prec_turn
    return State(net, prec, trace, pool), (v1 + v2).item()  # <- pool_stale


sd = torch.load(sys.argv[1], weights_only=True)
gen = torch.Generator().manual_seed(44)
state = State(
    net=(sd["embed.weight"], sd["embed.bias"], sd["mix.weight"], sd["mix.bias"],
         sd["out.weight"].squeeze(0)),
    prec=sd["log_precision"], trace=(), pool=torch.randn(24, 3, generator=gen))
losses = []
for k in range(5):
    pos = torch.randn(12, 3, generator=gen) * torch.tensor([1.0, 0.5, 0.2]) + 0.5
    slots = torch.randperm(24, generator=gen)[:12]
    kicks = [torch.randn(12, 3, generator=gen) for _ in range(4)]
    state, value = train_step(state, k, pos, slots, kicks)
    losses.append(value)

print(losses)
