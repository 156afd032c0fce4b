# SPDX-License-Identifier: Apache-2.0
"""Wasserstein GAN on short motion clips: 3D convolutions, gradient penalty, two critic rounds."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

FRAMES, SIDE, LATENT, WIDTH = 4, 4, 5, 4


class PixelNorm(nn.Module):
    def forward(self, x):
        return x / torch.sqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-3)  # <- pixel_norm


class EqualLinear(nn.Module):
    def __init__(self, cin, cout, gain=2**0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin))
        self.bias = nn.Parameter(torch.randn(cout) * 0.1)
        self.scale = gain / cin**0.5  # <- equal_lr

    def forward(self, x):
        return F.linear(x, self.weight * self.scale, self.bias)  # <- equal_lr


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = EqualLinear(LATENT, WIDTH * 2 * 2 * 2)
        self.norm = PixelNorm()
        self.conv = nn.Conv3d(WIDTH, WIDTH, 3, padding=1)
        self.rgb = nn.Conv3d(WIDTH, 1, 1)

    def forward(self, z):
        h = self.fc(z).view(-1, WIDTH, 2, 2, 2)
        h = F.leaky_relu(self.norm(h), 0.2)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        h = F.leaky_relu(self.norm(self.conv(h)), 0.2)
        return torch.tanh(self.rgb(h))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv3d(1, WIDTH, 3, padding=1)
        self.conv2 = nn.Conv3d(WIDTH, WIDTH, kernel_size=2, stride=2)
        self.fc = nn.Linear((WIDTH + 1) * 8, 1)

    def forward(self, x):
        h = F.softplus(self.conv1(x))
        h = F.softplus(self.conv2(h))
        spread = h.std(dim=0, unbiased=False).mean()  # <- batch_spread
        h = torch.cat([h, spread.expand(len(h), 1, *h.shape[2:])], dim=1)  # <- batch_spread
        return self.fc(h.flatten(1)).squeeze(1)


def gradient_penalty(critic, real, fake, alpha):
    mix = (alpha * real + (1 - alpha) * fake).detach().requires_grad_()
    score = critic(mix)
    (grad,) = torch.autograd.grad(score.sum(), mix, create_graph=True)
    norm = grad.flatten(1).norm(dim=1)  # <- sample_norm
    return ((norm - 1) ** 2).mean()  # <- sample_norm


torch.manual_seed(0)
gen_net, critic = Generator(), Critic()
torch.save({"generator": gen_net.state_dict(), "critic": critic.state_dict()}, sys.argv[1])
opt_g = torch.optim.Adam(  # <- second_moment
    gen_net.parameters(), lr=0.005, betas=(0.0, 0.9), eps=1e-2
)  # <- second_moment
opt_c = torch.optim.Adam(  # <- second_moment
    critic.parameters(), lr=0.01, betas=(0.0, 0.9), eps=1e-2
)  # <- second_moment
rng = torch.Generator().manual_seed(3)
losses = []
for step in range(4):
    critic_total = 0.0
    for _ in range(2):
        real = torch.randn(4, 1, FRAMES, SIDE, SIDE, generator=rng).cumsum(2).tanh()
        z = torch.randn(4, LATENT, generator=rng)
        alpha = torch.rand(4, 1, 1, 1, 1, generator=rng)
        with torch.no_grad():
            fake = gen_net(z)
        r, f = critic(real), critic(fake)
        gp = gradient_penalty(critic, real, fake, alpha)
        drift = 0.01 * (r**2).mean()
        c_loss = f.mean() - r.mean() + 5.0 * gp + drift
        opt_c.zero_grad()
        c_loss.backward()
        opt_c.step()  # <- second_moment
        critic_total += c_loss.item()
    z = torch.randn(4, LATENT, generator=rng)
    g_loss = -critic(gen_net(z)).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()  # <- second_moment
    losses.append(critic_total / 2 + g_loss.item())
print(losses)
