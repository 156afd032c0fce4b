# SPDX-License-Identifier: Apache-2.0
"""Convolutional VAE on small binary-like images: KL warm-up, Adam, EMA of the weights for evaluation."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

LATENT, WARMUP_STEPS, STEPS, BATCH, EMA_DECAY = 6, 4, 5, 10, 0.8


class DownBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(cout)  # <- bn_momentum

    def forward(self, x):
        return F.leaky_relu(self.bn(self.conv(x)), 0.2)  # <- bn_momentum


class Encoder(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1 = DownBlock(1, width)
        self.down2 = DownBlock(width, 2 * width)
        self.head = nn.Linear(2 * width * 9, 2 * LATENT)

    def forward(self, x):
        x = self.down2(self.down1(x))
        return self.head(x.flatten(1)).chunk(2, dim=1)


class Decoder(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(LATENT, 2 * width * 9)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)  # <- kernel_not_flipped
        self.up2 = nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1)  # <- kernel_not_flipped

    def forward(self, z):
        x = F.leaky_relu(self.fc(z), 0.2).view(len(z), -1, 3, 3)
        x = F.leaky_relu(self.up1(x), 0.2)  # <- kernel_not_flipped
        return self.up2(x)  # <- kernel_not_flipped


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, x, generator=None):
        mu, logvar = self.encoder(x)
        z = mu
        if self.training:
            noise = torch.randn(mu.shape, generator=generator)
            z = mu + noise * torch.exp(0.5 * logvar)
        return self.decoder(z), mu, logvar


def elbo(logits, x, mu, logvar, beta):
    recon = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / len(x)  # <- kl_mean_latent
    return recon + beta * kld  # <- kl_warmup_late kl_mean_latent


class ModelEMA:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for ours, theirs in zip(self.module.parameters(), model.parameters()):
            ours.mul_(self.decay).add_(theirs, alpha=1 - self.decay)  # <- ema_before_step
        for ours, theirs in zip(self.module.buffers(), model.buffers()):
            ours.copy_(theirs)


def blobs(n, generator):
    """Images of one soft disc each."""
    centre = torch.rand(n, 2, 1, 1, generator=generator) * 8 + 2
    radius = torch.rand(n, 1, 1, generator=generator) * 2 + 1.5
    ys, xs = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    distance = ((ys - centre[:, 0]) ** 2 + (xs - centre[:, 1]) ** 2).sqrt()
    return torch.sigmoid(2 * (radius - distance)).unsqueeze(1)


torch.manual_seed(60)
model = VAE()
with torch.no_grad():
    for p in model.decoder.parameters():
        p.mul_(3)
torch.save(model.state_dict(), sys.argv[1])

generator = torch.Generator().manual_seed(61)
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
ema = ModelEMA(model, EMA_DECAY)

losses = []
for step in range(STEPS):
    x = blobs(BATCH, generator)
    beta = min(1.0, (step + 1) / WARMUP_STEPS)  # <- kl_warmup_late
    logits, mu, logvar = model(x, generator)
    loss = elbo(logits, x, mu, logvar, beta)  # <- kl_warmup_late kl_mean_latent
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model)  # <- ema_before_step
    losses.append(loss.item())

with torch.no_grad():
    x = blobs(BATCH, generator)
    logits, mu, logvar = ema.module(x)  # <- bn_momentum ema_before_step
    losses.append(elbo(logits, x, mu, logvar, 1.0).item())
print(losses)
