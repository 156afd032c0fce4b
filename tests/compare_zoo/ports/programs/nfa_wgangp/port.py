# SPDX-License-Identifier: Apache-2.0
"""Functional WGAN-GP; parameters are lists of (W, b), input gradients per example by vmap."""
import math
import sys
import torch
from torch.func import grad, vmap

torch.set_num_threads(1)


def load(path):
    sd = torch.load(path, weights_only=True)
    nets = {}
    for who in ("gen", "critic"):
        nets[who] = []
        for i in (0, 2, 4):
            b = sd.get(f"{who}.net.{i}.bias")
            w = sd[f"{who}.net.{i}.weight"].t().contiguous()
            nets[who].append((w,) if b is None else (w, b))
    return nets["gen"], nets["critic"]


def mlp(layers, x, act):
    for i, (w, *b) in enumerate(layers):
        x = x @ w  # <- reused_latent
        if b:
            x = x + b[0]
        if i < len(layers) - 1:
            x = act(x)
    return x


softplus = lambda x: torch.logaddexp(x, torch.zeros_like(x))  # <- gen_activation
sample = lambda theta, z: mlp(theta, z, softplus)
score = lambda phi, x: mlp(phi, x, torch.tanh).squeeze(-1)


def critic_objective(phi, real, fake, eps):
    between = fake + eps * (real - fake)  # <- mix_swapped
    slopes = vmap(grad(lambda x: score(phi, x)))(between)  # <- slope_detached
    length = slopes.pow(2).sum(-1).sqrt()  # <- slope_detached
    return score(phi, fake).mean() - score(phi, real).mean() + 5 * (length - 1).pow(2).mean()


def gen_objective(theta, phi, z):
    return score(phi, sample(theta, z)).mean().neg()  # <- reused_latent


def flat(layers):
    return [t for layer in layers for t in layer]


def like(ts, layers):
    it = iter(ts)
    return [tuple(next(it) for _ in layer) for layer in layers]


def value_grad(f, layers, *args):
    leaves = [t.detach().requires_grad_() for t in flat(layers)]
    v = f(like(leaves, layers), *args)
    return v.item(), torch.autograd.grad(v, leaves)


def adam(layers, grads, state, lr):
    t, ms, vs = state if state else (0, [0.0] * len(grads), [0.0] * len(grads))
    t += 1
    ms = [0.5 * m + 0.5 * g for m, g in zip(ms, grads)]
    vs = [0.9 * v + 0.1 * g * g for v, g in zip(vs, grads)]  # <- second_beta
    new = [p - lr * (m / (1 - 0.5 ** t)) / (torch.sqrt(v / (1 - 0.9 ** t)) + 1e-5)  # <- second_beta
           for p, m, v in zip(flat(layers), ms, vs)]
    return like(new, layers), (t, ms, vs)


def ring(n, rng):
    ang = torch.randint(0, 8, (n,), generator=rng).float() * math.pi / 4
    return torch.stack((ang.cos(), ang.sin()), -1) + 0.05 * torch.randn(n, 2, generator=rng)


theta, phi = load(sys.argv[1])
st_theta = st_phi = None
rng = torch.Generator().manual_seed(21)
losses = []
for _ in range(4):
    vals = []
    for _ in range(3):
        real, z, eps = (ring(12, rng), torch.randn(12, 4, generator=rng),
                        torch.rand(12, 1, generator=rng))
        v, g = value_grad(critic_objective, phi, real, sample(theta, z), eps)
        phi, st_phi = adam(phi, g, st_phi, 4e-3)
        vals.append(v)
    v, g = value_grad(
        gen_objective, theta, phi, torch.randn(12, 4, generator=rng))  # <- reused_latent
    theta, st_theta = adam(theta, g, st_theta, 2e-3)
    losses.append(sum(vals) / len(vals) + 0.1 * v)

print(losses)
