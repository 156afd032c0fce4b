# SPDX-License-Identifier: Apache-2.0
"""Score-based generation through a stochastic differential equation: denoising score matching and
then samples by a predictor and a corrector with the averaged weights.
"""

import sys

import numpy as np
import torch
from torch import nn

SIGMA, SIDE, BATCH, SNR, EPS = 8.0, 8, 4, 0.16, 1e-3


class GaussianFourierProjection(nn.Module):
    def __init__(self, embed_dim, scale=4.0):
        super().__init__()
        self.W = nn.Parameter(torch.randn(embed_dim // 2) * scale, requires_grad=False)

    def forward(self, x):
        x_proj = x[:, None] * self.W[None, :] * 2 * np.pi
        return torch.cat([torch.sin(x_proj), torch.cos(x_proj)], dim=-1)  # <- waves


class Dense(nn.Module):
    def __init__(self, input_dim, output_dim):
        super().__init__()
        self.dense = nn.Linear(input_dim, output_dim)

    def forward(self, x):
        return self.dense(x)[..., None, None]


def marginal_prob_std(t):
    return torch.sqrt((SIGMA ** (2 * t) - 1.0) / 2.0 / np.log(SIGMA))


def diffusion_coeff(t):
    return SIGMA**t


class ScoreNet(nn.Module):
    def __init__(self, channels=(6, 8, 12), embed_dim=12):
        super().__init__()
        self.embed = nn.Sequential(
            GaussianFourierProjection(embed_dim), nn.Linear(embed_dim, embed_dim)
        )
        self.conv1 = nn.Conv2d(1, channels[0], 3, stride=1, padding=1, bias=False)
        self.dense1 = Dense(embed_dim, channels[0])
        self.gnorm1 = nn.GroupNorm(2, channels[0])
        self.conv2 = nn.Conv2d(channels[0], channels[1], 3, stride=2, padding=1, bias=False)
        self.dense2 = Dense(embed_dim, channels[1])
        self.gnorm2 = nn.GroupNorm(4, channels[1])  # <- groups
        self.conv3 = nn.Conv2d(channels[1], channels[2], 3, stride=2, padding=1, bias=False)
        self.dense3 = Dense(embed_dim, channels[2])
        self.gnorm3 = nn.GroupNorm(4, channels[2])
        self.tconv3 = nn.ConvTranspose2d(  # <- mirrored
            channels[2], channels[1], 3, stride=2, padding=1, output_padding=1, bias=False
        )
        self.dense5 = Dense(embed_dim, channels[1])
        self.tgnorm3 = nn.GroupNorm(4, channels[1])
        self.tconv2 = nn.ConvTranspose2d(  # <- mirrored
            2 * channels[1], channels[0], 3, stride=2, padding=1, output_padding=1, bias=False
        )
        self.dense6 = Dense(embed_dim, channels[0])
        self.tgnorm2 = nn.GroupNorm(2, channels[0])
        self.tconv1 = nn.ConvTranspose2d(2 * channels[0], 1, 3, stride=1, padding=1)
        self.act = lambda x: x * torch.sigmoid(x)

    def forward(self, x, t):
        embed = self.act(self.embed(t))  # <- waves
        h1 = self.act(self.gnorm1(self.conv1(x) + self.dense1(embed)))
        h2 = self.conv2(h1) + self.dense2(embed)
        h2 = self.act(self.gnorm2(h2))  # <- groups
        h3 = self.act(self.gnorm3(self.conv3(h2) + self.dense3(embed)))
        h = self.tconv3(h3)  # <- mirrored
        h = h + self.dense5(embed)
        h = self.act(self.tgnorm3(h))
        h = self.tconv2(torch.cat([h, h2], dim=1))
        h = h + self.dense6(embed)
        h = self.act(self.tgnorm2(h))
        h = self.tconv1(torch.cat([h, h1], dim=1))
        return h / marginal_prob_std(t)[:, None, None, None]


class ExponentialMovingAverage:
    def __init__(self, parameters, decay):
        self.decay, self.num_updates = decay, 0
        self.shadow_params = [p.clone().detach() for p in parameters if p.requires_grad]

    @torch.no_grad()
    def update(self, parameters):
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))  # <- ramped
        parameters = [p for p in parameters if p.requires_grad]
        for s_param, param in zip(self.shadow_params, parameters):
            s_param.sub_((1.0 - decay) * (s_param - param))  # <- ramped

    @torch.no_grad()
    def copy_to(self, parameters):
        parameters = [p for p in parameters if p.requires_grad]
        for s_param, param in zip(self.shadow_params, parameters):
            param.copy_(s_param)


def loss_fn(model, x, generator):
    random_t = torch.rand(x.shape[0], generator=generator) * (1.0 - EPS) + EPS
    z = torch.randn(x.shape, generator=generator)
    std = marginal_prob_std(random_t)
    perturbed_x = x + z * std[:, None, None, None]
    score = model(perturbed_x, random_t)
    weighted = score * std[:, None, None, None] + z  # <- weighted
    return torch.mean(torch.sum(weighted**2, dim=(1, 2, 3)))  # <- weighted


@torch.no_grad()
def pc_sampler(score_model, generator, num_steps=5):
    t = torch.ones(BATCH)
    init_x = torch.randn(BATCH, 1, SIDE, SIDE, generator=generator)
    x = init_x * marginal_prob_std(t)[:, None, None, None]
    time_steps = np.linspace(1.0, EPS, num_steps)
    step_size = time_steps[0] - time_steps[1]
    for time_step in time_steps:
        batch_time_step = torch.ones(BATCH) * time_step
        # Corrector step (Langevin MCMC)
        grad = score_model(x, batch_time_step)
        grad_norm = torch.norm(grad.reshape(grad.shape[0], -1), dim=-1).mean()
        noise_norm = np.sqrt(np.prod(x.shape[1:]))
        langevin_step_size = 2 * (SNR * noise_norm / grad_norm) ** 2
        noise = torch.randn(x.shape, generator=generator)
        x = (
            x + langevin_step_size * grad + torch.sqrt(2 * langevin_step_size) * noise
        )  # <- langevin
        # Predictor step (Euler-Maruyama)
        g = diffusion_coeff(batch_time_step)
        score = score_model(x, batch_time_step)
        x_mean = x + (g**2)[:, None, None, None] * score * step_size  # <- drift last_noise
        noise = torch.randn(x.shape, generator=generator)
        x = x_mean + torch.sqrt(g**2 * step_size)[:, None, None, None] * noise  # <- drift
    return x_mean  # <- last_noise


torch.manual_seed(51)
model = ScoreNet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
ema = ExponentialMovingAverage(model.parameters(), decay=0.999)
data = np.random.default_rng(52)
generator = torch.Generator().manual_seed(53)
losses = []
for _ in range(4):
    x = torch.from_numpy(data.uniform(0, 1, (BATCH, 1, 2, 2)).astype(np.float32))
    x = x.repeat_interleave(SIDE // 2, 2).repeat_interleave(SIDE // 2, 3)
    loss = loss_fn(model, x, generator)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model.parameters())
    losses.append(loss.item())
ema.copy_to(model.parameters())
samples = pc_sampler(model, generator)  # <- last_noise
losses.append(samples.abs().mean().item())  # <- last_noise
losses.append(samples.std().item())  # <- last_noise
