# SPDX-License-Identifier: Apache-2.0
"""GAN trainer without modules: input gradient of the critic derived by hand, sigma as a norm,
pure updates."""
import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Critic(NamedTuple):
    a: Tensor      # 3 x HID, the bias in the last row
    w: Tensor      # HID x HID, raw, in x out
    wb: Tensor
    c: Tensor      # HID
    cb: Tensor


class Gen(NamedTuple):
    first: Tensor
    second: Tensor
    third: Tensor


def with_bias(sd, name):
    return torch.cat([sd[name + ".weight"].T, sd[name + ".bias"].unsqueeze(0)])


def power_step(w, v):
    """One power iteration on the in-by-out matrix; returns the left vector of the out-by-in
    one and the new v."""
    u = torch.nn.functional.normalize(v @ w, dim=0)
    wu = w @ u
    return u, wu / wu.norm()


def critic(d, x, u, want_input_grad=False):
    """With v = W u / |W u| the sigma u'Wv is simply |W u|, differentiated at fixed u."""
    w = d.w / torch.linalg.vector_norm(d.w @ u)
    pre = torch.addmm(d.a[2], x, d.a[:2])
    mid = torch.tanh(torch.logaddexp(pre, torch.zeros(())) @ w + d.wb)
    score = mid @ d.c + d.cb
    if not want_input_grad:
        return score
    back = (1 - mid * mid) * d.c
    dx = ((back @ w.T) * pre.sigmoid()) @ d.a[:2].T
    return score, dx


def generate(g, z):
    h = z
    for i, layer in enumerate(g):
        h = h @ layer[:-1] + layer[-1]
        if i < 2:
            h = 0.6 * h + 0.4 * h.abs()          # leaky slope 0.2  # <- leak_slope
    return h


class AdamNoMomentum:
    def __init__(self, like, lr):
        self.second, self.lr, self.t = [torch.zeros_like(p) for p in like], lr, 0

    def update(self, params, grads):
        self.t += 1
        corr = 1.0 - 0.9 ** self.t  # <- second_moment
        self.second = [torch.lerp(g * g, s, 0.9) for s, g in zip(self.second, grads)]
        return type(params)(*(p - self.lr * g / (torch.sqrt(s / corr) + 1e-5)  # <- second_moment
                              for p, g, s in zip(params, grads, self.second)))


def tracked(tup):
    return type(tup)(*(p.detach().requires_grad_() for p in tup))


sd = torch.load(sys.argv[1], weights_only=True)
G = Gen(*(with_bias(sd, f"G.net.{i}") for i in (0, 2, 4)))
D = Critic(with_bias(sd, "D.l1"), sd["D.l2.parametrizations.weight.original"].T, sd["D.l2.bias"],
           sd["D.l3.weight"][0], sd["D.l3.bias"][0])
v = sd["D.l2.parametrizations.weight.0._v"]
adam_g, adam_d = AdamNoMomentum(G, 2e-3), AdamNoMomentum(D, 4e-3)

rng = torch.Generator().manual_seed(64)
losses = []
for _ in range(4):
    k = torch.randint(0, 8, (20,), generator=rng).numpy().astype(np.float32)
    ring = 2 * np.stack([np.cos(k * np.float32(np.pi / 4)), np.sin(k * np.float32(np.pi / 4))],
                        axis=1)
    real = torch.from_numpy(ring) + 0.05 * torch.randn(20, 2, generator=rng)
    z_critic, z_gen = torch.randn(20, 4, generator=rng), torch.randn(20, 4, generator=rng)

    D = tracked(D)
    with torch.no_grad():
        fake = generate(G, z_critic)
        u_real, v = power_step(D.w, v)
        u_fake, v = power_step(D.w, v)  # <- power_skipped
    s_fake = critic(D, fake, u_fake)  # <- power_skipped
    s_real, dx = critic(D, real, u_real, want_input_grad=True)
    penalty = dx.square().sum() / (2 * len(real))  # <- penalty_half
    loss_d = (penalty - torch.nn.functional.logsigmoid(-s_fake).mean()  # <- penalty_half
              - torch.nn.functional.logsigmoid(s_real).mean())
    D = adam_d.update(D, torch.autograd.grad(loss_d, D))  # <- stale_critic

    G = tracked(G)
    D = Critic(*(p.detach() for p in D))  # <- stale_critic
    u, v = power_step(D.w, v)
    loss_g = -torch.nn.functional.logsigmoid(  # <- stale_critic
        critic(D, generate(G, z_gen), u)).sum() / 20  # <- stale_critic
    G = adam_g.update(G, torch.autograd.grad(loss_g, G))
    losses.append(loss_d.item() + loss_g.item())
print(losses)
