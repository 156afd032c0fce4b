# SPDX-License-Identifier: Apache-2.0
"""Multi-task training: a gradient per task, merged heads, updates with closed-form rates."""
import math
import sys

import torch

torch.set_num_threads(1)
src = torch.load(sys.argv[1], weights_only=True)
trunk = [src[f"trunk.{i}.{n}"].clone() for i in (0, 2) for n in ("weight", "bias")]
# one matrix for both heads: regression rows on top, bias as last column
head = torch.cat([torch.cat([src[f"{h}_head.weight"], src[f"{h}_head.bias"][:, None]], 1)
                  for h in ("reg", "cls")])
precision = torch.exp(-src["log_var"])                 # kept as exp(-s), stepped in s
for t in (*trunk, head):
    t.requires_grad_()


def trunk_rate(k):
    return 3e-3 * (0.25 + 0.375 * k if k < 2  # <- cosine_start
                   else 0.5 * (1 + math.cos(math.pi * (k - 2) / 4)))  # <- cosine_start


def adamw():
    st = [(torch.zeros_like(p), torch.zeros_like(p)) for p in trunk]

    def update(k, grads):
        lr, fix1, fix2 = trunk_rate(k), 1 - 0.9 ** (k + 1), 1 - 0.999 ** (k + 1)  # <- cosine_start
        for p, g, (m, v) in zip(trunk, grads, st):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).add_(g.square(), alpha=0.001)
            p.sub_(lr * (m / fix1 / ((v / fix2).sqrt() + 1e-8) + 0.1 * p))

    return update


def heads():
    sq = torch.zeros(3, 25)
    vel = None

    def update(k, g):
        nonlocal vel
        g_reg, g_cls = g[:3], g[3:]
        sq.lerp_(g_reg.square(), 0.1)
        # the first step of a dampened momentum buffer takes the bare gradient
        vel = g_cls.clone() if vel is None else 0.9 * (vel + g_cls)  # <- dampening
        head[:3] -= 2e-3 * 0.9 ** k * g_reg / (sq.sqrt() + 1e-5)
        head[3:] -= 0.1 * 0.5 ** (k // 2) * vel  # <- dampening

    return update


def balance():
    acc = torch.zeros(2)

    def update(task):
        g = 1 - precision * task
        acc.add_(g * g)
        precision.mul_(torch.exp(0.05 * g / (acc.sqrt() + 1e-10)))

    return update


def elu(x):
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))  # <- minus_one


def picked_nll(z, y):
    return (z.logsumexp(1) - z.gather(1, y[:, None])[:, 0]).mean()


def huber(d):
    a = d.abs()
    q = a.clamp(max=0.5)  # <- beta
    return (q * q + (a - q)).mean()  # <- beta


rng = torch.Generator().manual_seed(17)
step_trunk, step_heads, step_balance = adamw(), heads(), balance()
losses = []
for k in range(5):
    x = torch.randn(24, 10, generator=rng)
    noise = 0.1 * torch.randn(24, 3, generator=rng)
    yr = torch.stack([x[:, 0] * x[:, 1], x[:, 2].abs(), x[:, 3:6].sum(1)], 1) + noise
    yc = x[:, :4].argmax(1)

    h = elu(elu(x @ trunk[0].T + trunk[1]) @ trunk[2].T + trunk[3])  # <- minus_one
    out = h @ head[:, :24].T + head[:, 24]
    parts = [huber(out[:, :3] - yr), picked_nll(out[:, 3:], yc)]
    per_task = [torch.autograd.grad(p, [*trunk, head], retain_graph=True) for p in parts]
    with torch.no_grad():
        w = precision.flip(0)  # <- flipped
        mixed = [w[0] * a + w[1] * b for a, b in zip(*per_task)]  # <- flipped
        task = torch.stack(parts[::-1])
        losses.append(float((precision * task - precision.log()).sum()))
        step_heads(k, mixed[-1])
        step_trunk(k, mixed[:-1])
        step_balance(task)

print(losses)
