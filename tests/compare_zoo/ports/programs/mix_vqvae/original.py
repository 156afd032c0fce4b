# SPDX-License-Identifier: Apache-2.0
"""VQ-VAE on small images with an exponential moving average codebook (nn.Module version)."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizerEMA(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, commitment_cost, decay, epsilon=1e-5):
        super().__init__()
        self._num_embeddings = num_embeddings
        self._commitment_cost = commitment_cost
        self._decay, self._epsilon = decay, epsilon
        weight = torch.randn(num_embeddings, embedding_dim)
        self.register_buffer("embedding", weight)
        self.register_buffer("ema_cluster_size", torch.ones(num_embeddings))
        self.register_buffer("ema_w", weight.clone())

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        flat = inputs.view(-1, inputs.shape[-1])
        distances = (
            flat.pow(2).sum(1, keepdim=True)
            + self.embedding.pow(2).sum(1)
            - 2 * flat @ self.embedding.t()
        )
        indices = distances.argmin(1)
        encodings = F.one_hot(indices, self._num_embeddings).type_as(flat)
        quantized = (encodings @ self.embedding).view_as(inputs)

        if self.training:
            with torch.no_grad():
                self.ema_cluster_size.mul_(self._decay).add_(  # <- count_decay
                    encodings.sum(0), alpha=1 - self._decay
                )
                n = self.ema_cluster_size.sum()
                smoothed = (
                    (self.ema_cluster_size + self._epsilon)
                    / (n + self._num_embeddings * self._epsilon)
                    * n
                )
                dw = encodings.t() @ flat
                self.ema_w.mul_(self._decay).add_(dw, alpha=1 - self._decay)
                self.embedding.copy_(self.ema_w / smoothed.unsqueeze(1))  # <- count_decay

        e_latent_loss = F.mse_loss(quantized.detach(), inputs)  # <- commit_detach commit_weight
        loss = self._commitment_cost * e_latent_loss  # <- commit_weight
        quantized = inputs + (quantized - inputs).detach()  # <- straight_through
        return loss, quantized.permute(0, 3, 1, 2).contiguous()


class Residual(nn.Module):
    def __init__(self, ch, mid):
        super().__init__()
        self.block = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(ch, mid, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.Conv2d(mid, ch, 1, bias=False),
        )

    def forward(self, x):
        return x + self.block(x)  # <- residual_act


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 8, 4, stride=2, padding=1), Residual(8, 4), nn.ReLU(), nn.Conv2d(8, 4, 1)
        )
        self.vq = VectorQuantizerEMA(10, 4, commitment_cost=0.5, decay=0.8)  # <- commit_weight
        self.decoder = nn.Sequential(
            nn.Conv2d(4, 8, 3, padding=1),
            Residual(8, 4),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 3, 4, stride=2, padding=1),
        )

    def forward(self, x):
        loss, quantized = self.vq(self.encoder(x))
        return loss, self.decoder(quantized)


torch.manual_seed(8)
model = Model()
model.vq.embedding.mul_(0.4)
model.vq.ema_w.mul_(0.4)
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(17)
data = torch.randn(5, 4, 3, 8, 8, generator=gen)
data_variance = data.var().item()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, amsgrad=True)

losses = []
for batch in data:
    optimizer.zero_grad()
    vq_loss, recon = model(batch)
    recon_error = F.mse_loss(recon, batch) / data_variance
    loss = recon_error + vq_loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
