# SPDX-License-Identifier: Apache-2.0
"""Meta-SGD, with tasks on a vmapped axis and the inner loop through torch.func.grad."""
import sys
from functools import partial
import torch
from torch.func import grad, vmap

torch.set_num_threads(1)


def net(theta, x):
    (w1, b1), (w2, b2), (w3, b3) = theta
    h = torch.tanh(x[:, None] * w1 + b1)
    h = torch.tanh(h @ w2 + b2)
    return h @ w3 + b3


def mse(theta, x, y):
    return ((net(theta, x) - y) ** 2).mean()  # <- wide


def inner(theta, alpha, x, y, steps):
    for _ in range(steps):  # <- few
        g = grad(mse)(theta, x, y)  # <- detached
        theta = [tuple(p - a * d for p, a, d in zip(*layer))  # <- detached few
                 for layer in zip(theta, alpha, g)]
    return theta  # <- few


def task_loss(theta, alpha, xs, ys, xq, yq, steps=2):
    return mse(inner(theta, alpha, xs, ys, steps), xq, yq)  # <- few


def batch_loss(theta, alpha, tasks):
    return vmap(partial(task_loss, theta, alpha))(*tasks).mean()


def draw(gen, k=5):
    amp = 0.5 + 2 * torch.rand(1, generator=gen)
    phase = 3.14 * torch.rand(1, generator=gen)
    x = 10 * torch.rand(2 * k, generator=gen) - 5
    y = amp * torch.sin(x + phase)
    return x[:k], y[:k], x[k:], y[k:]


def read(sd, pattern):
    out = []
    for i in (1, 2, 3):
        w, b = sd[pattern.format(i, "weight")], sd[pattern.format(i, "bias")]
        # first and last layers act on scalars: keep them as vectors
        w = w.squeeze(1) if i == 1 else w.squeeze(0) if i == 3 else w.T
        out.append((w, b.squeeze(0) if i == 3 else b))
    return out


def update(tree, grads, memory, n, lr):
    """Adam on clipped gradients; returns the new tree and the new (m, v) of each leaf."""
    new, mem = [], []
    for layer, glayer in zip(tree, grads):
        row = []
        for p, g in zip(layer, glayer):
            g = g.clamp(-0.5, 0.5)  # <- clip_side
            m, v = memory.get((len(new), len(row)), (torch.zeros(()), torch.zeros(())))
            m, v = torch.lerp(m.expand_as(g), g, 0.1), v + 0.001 * (g * g - v)
            mem.append(((len(new), len(row)), (m, v)))
            row.append(p - lr * (m / (1 - 0.9 ** n)) / ((v / (1 - 0.999 ** n)) ** 0.5 + 1e-4))
        new.append(tuple(row))
    return new, dict(mem)


sd = torch.load(sys.argv[1], weights_only=True)
theta = read(sd, "net.fc{}.{}")
alpha = read(sd, "rates.fc{}_{}")
mem_t, mem_a = {}, {}
gen = torch.Generator().manual_seed(9)
losses = []
for it in range(4):
    tasks = tuple(torch.stack(z) for z in zip(*(draw(gen) for _ in range(4))))
    (gt, ga), value = torch.func.grad_and_value(batch_loss, argnums=(0, 1))(theta, alpha, tasks)
    decay = 0.8 ** it  # <- decay_early
    theta, mem_t = update(theta, gt, mem_t, it + 1, 5e-3 * decay)  # <- decay_early
    alpha, mem_a = update(alpha, ga, mem_a, it + 1, 1e-3 * decay)  # <- decay_early
    losses.append(value.item())

print(losses)
