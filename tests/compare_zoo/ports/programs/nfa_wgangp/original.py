# SPDX-License-Identifier: Apache-2.0
"""Toy WGAN-GP on a ring of gaussians: three critic steps to each generator step."""
import math
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)


class Generator(nn.Module):
    def __init__(self, z=4, h=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(z, h), nn.Softplus(),  # <- gen_activation
                                 nn.Linear(h, h), nn.Softplus(),  # <- gen_activation
                                 nn.Linear(h, 2))

    def forward(self, z):
        return self.net(z)  # <- gen_activation reused_latent


class Critic(nn.Module):
    def __init__(self, h=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(),
                                 nn.Linear(h, 1, bias=False))

    def forward(self, x):
        return self.net(x)[:, 0]


def gradient_penalty(critic, real, fake, alpha):
    mix = (alpha * real + (1 - alpha) * fake).requires_grad_(True)  # <- mix_swapped
    out = critic(mix)
    grads = torch.autograd.grad(out.sum(), mix, create_graph=True)[0]  # <- slope_detached
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()  # <- slope_detached


def real_batch(n, gen):
    k = torch.randint(0, 8, (n,), generator=gen).float()
    centre = torch.stack([torch.cos(k * math.pi / 4), torch.sin(k * math.pi / 4)], 1)
    return centre + 0.05 * torch.randn(n, 2, generator=gen)


torch.manual_seed(0)
model = nn.ModuleDict({"gen": Generator(), "critic": Critic()})
torch.save(model.state_dict(), sys.argv[1])
G, C = model["gen"], model["critic"]
opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.9), eps=1e-5)  # <- second_beta
opt_c = torch.optim.Adam(C.parameters(), lr=4e-3, betas=(0.5, 0.9), eps=1e-5)  # <- second_beta

rng = torch.Generator().manual_seed(21)
losses = []
for it in range(4):
    c_loss = 0.0
    for _ in range(3):
        real = real_batch(12, rng)
        z = torch.randn(12, 4, generator=rng)
        alpha = torch.rand(12, 1, generator=rng)
        fake = G(z).detach()
        opt_c.zero_grad()
        loss_c = (C(fake).mean() - C(real).mean()
                  + 5.0 * gradient_penalty(C, real, fake, alpha))
        loss_c.backward()
        opt_c.step()  # <- second_beta
        c_loss += loss_c.item()
    for p in C.parameters():
        p.requires_grad_(False)
    opt_g.zero_grad()
    loss_g = -C(G(torch.randn(12, 4, generator=rng))).mean()  # <- reused_latent
    loss_g.backward()
    opt_g.step()  # <- second_beta
    for p in C.parameters():
        p.requires_grad_(True)
    losses.append(c_loss / 3 + 0.1 * loss_g.item())

print(losses)
