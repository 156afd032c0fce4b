# SPDX-License-Identifier: Apache-2.0
"""Clipped policy optimisation on flat arrays, gradients summed over four micro-batches."""
import math
import sys

import torch

T, E, D, A = 16, 4, 6, 2
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
state = torch.load(sys.argv[1], weights_only=True)
order = list(state)
leaves = [state[n].clone().requires_grad_() for n in order]
net = dict(zip(order, leaves))


def mlp(x, who):
    for i in (0, 2):
        x = torch.addmm(net[f"{who}.{i}.bias"], x, net[f"{who}.{i}.weight"].t()).tanh()
    return torch.addmm(net[f"{who}.4.bias"], x, net[f"{who}.4.weight"].t())


def value_of(x):
    return mlp(x, "critic")[:, 0]


def log_density(x, a):
    ls = net["actor_logstd"]
    z = (a - mlp(x, "actor_mean")) * torch.exp(-ls)
    return -(0.5 * z * z + ls + HALF_LOG_2PI).sum(-1)


rng = torch.Generator().manual_seed(8)
seen = torch.randn(T + 1, E, D, generator=rng)
acted = torch.randn(T, E, A, generator=rng)
reward = torch.randn(T, E, generator=rng) + seen[:-1, :, 0]
ended = (torch.rand(T + 1, E, generator=rng) < 0.2).float()
drift = 0.2 * torch.randn(T * E, generator=rng)
x_all, a_all = seen[:T].flatten(0, 1), acted.flatten(0, 1)

with torch.no_grad():
    v = value_of(seen.flatten(0, 1)).view(T + 1, E)
    logp_old = log_density(x_all, a_all) + drift
    alive = 1 - ended[1:]  # <- episode_end
    td = reward + 0.97 * alive * v[1:] - v[:-1]  # <- episode_end
    # advantage = sum over l of (gamma lambda)^l td_{t+l}, as a triangular system per environment
    chain = torch.zeros(E, T, T)
    here, after = torch.arange(T - 1), torch.arange(1, T)
    chain[:, here, after] = -0.97 * 0.9 * alive[:-1].t()  # <- episode_end
    eye = torch.eye(T).expand(E, T, T)
    solved = torch.linalg.solve_triangular(eye + chain, td.t().unsqueeze(-1), upper=True)
    adv_all = solved.squeeze(-1).t()
    target = (adv_all + v[:-1]).flatten()
    adv_all, v_old = adv_all.flatten(), v[:-1].flatten()


def partial_loss(rows, scaled, n):
    """The share of `rows` in the mean over n samples."""
    r = torch.exp(log_density(x_all[rows], a_all[rows]) - logp_old[rows])
    surrogate = torch.minimum(scaled * r, scaled * r.clamp(0.9, 1.1))  # <- adv_scope
    now = value_of(x_all[rows])
    near = torch.min(torch.max(now, v_old[rows] - 0.1), v_old[rows] + 0.1)  # <- value_clip
    free, held = (now - target[rows]).square(), (near - target[rows]).square()
    worst = torch.maximum(free, held)  # <- value_clip
    spread = (net["actor_logstd"] + 0.5 + HALF_LOG_2PI).sum()  # <- entropy_sum
    per_sample = -surrogate + 0.25 * worst - 0.02 * spread  # <- entropy_sum
    return per_sample.sum() / n


m = [torch.zeros_like(p) for p in leaves]
s = [torch.zeros_like(p) for p in leaves]
losses = []
for k in range(4):
    rows = torch.arange(T * E)[k % 2::2]
    raw = adv_all[rows]
    scaled = (raw - raw.mean()) / (raw.var().sqrt() + 1e-8)  # <- adv_scope
    value = 0.0
    for part, weight in zip(rows.chunk(4), scaled.chunk(4)):  # <- adv_scope
        piece = partial_loss(part, weight, len(rows))
        piece.backward()
        value += piece.item()
    rate = 3e-3 * (1 - k / 5)  # <- anneal
    with torch.no_grad():
        for i, p in enumerate(leaves):
            m[i] += 0.1 * (p.grad - m[i])
            s[i] += 0.001 * (p.grad ** 2 - s[i])
            step = m[i] / (1 - 0.9 ** (k + 1)) / ((s[i] / (1 - 0.999 ** (k + 1))) ** 0.5 + 1e-5)
            p -= rate * step  # <- anneal
            p.grad = None
    losses.append(value)
print(losses)
