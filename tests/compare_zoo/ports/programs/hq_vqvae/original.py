# SPDX-License-Identifier: Apache-2.0
"""VQ-VAE with a straight-through estimator and an exponential-moving-average codebook."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(3)


class Residual(nn.Module):
    def __init__(self, ch, hidden):
        super().__init__()
        self.block = nn.Sequential(
            nn.ReLU(), nn.Conv2d(ch, hidden, 3, padding=1, bias=False),
            nn.ReLU(), nn.Conv2d(hidden, ch, 1, bias=False))

    def forward(self, x):
        return x + self.block(x)


class VectorQuantizerEMA(nn.Module):
    def __init__(self, n_codes, dim, beta=0.25, decay=0.9, eps=1e-5):
        super().__init__()
        self.n_codes, self.dim, self.beta, self.decay, self.eps = n_codes, dim, beta, decay, eps
        self.register_buffer("embedding", 0.5 * torch.randn(n_codes, dim))
        self.register_buffer("cluster_size", torch.ones(n_codes))
        self.register_buffer("ema_w", self.embedding.clone())

    def forward(self, z):
        z = z.permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, self.dim)
        dist = (flat ** 2).sum(1, keepdim=True) + (self.embedding ** 2).sum(1) - 2 * flat @ self.embedding.t()
        idx = dist.argmin(1)
        onehot = F.one_hot(idx, self.n_codes).type(flat.dtype)
        quant = (onehot @ self.embedding).view(z.shape)
        if self.training:
            with torch.no_grad():
                self.cluster_size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                self.ema_w.mul_(self.decay).add_(onehot.t() @ flat, alpha=1 - self.decay)
                n = self.cluster_size.sum()
                size = (self.cluster_size + self.eps) / (n + self.n_codes * self.eps) * n
                self.embedding.copy_(self.ema_w / size.unsqueeze(1))
        loss = self.beta * F.mse_loss(quant.detach(), z)
        quant = z + (quant - z).detach()
        return quant.permute(0, 3, 1, 2).contiguous(), loss


class VQVAE(nn.Module):
    def __init__(self, h=12, dim=6, n_codes=10):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, h, 4, 2, 1), nn.ReLU(), nn.Conv2d(h, h, 3, 1, 1), Residual(h, 6), nn.ReLU(), nn.Conv2d(h, dim, 1))
        self.vq = VectorQuantizerEMA(n_codes, dim)
        self.decoder = nn.Sequential(
            nn.Conv2d(dim, h, 3, 1, 1), Residual(h, 6), nn.ReLU(), nn.ConvTranspose2d(h, 3, 4, 2, 1))

    def forward(self, x):
        q, vq_loss = self.vq(self.encoder(x))
        return self.decoder(q), vq_loss


model = VQVAE()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, amsgrad=False)
gen = torch.Generator().manual_seed(8)
data = torch.rand(36, 3, 8, 8, generator=gen) - 0.5
variance = data.var()

model.train()
losses = []
for step in range(6):
    x = data[step * 6:(step + 1) * 6]
    optimizer.zero_grad()
    recon, vq_loss = model(x)
    loss = F.mse_loss(recon, x) / variance + vq_loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
