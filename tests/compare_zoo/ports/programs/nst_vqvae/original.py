# SPDX-License-Identifier: Apache-2.0
"""VQ-VAE with a codebook kept by moving averages, after the well-known PyTorch notebook."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizerEMA(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, commitment_cost, decay, epsilon=1e-2):
        super().__init__()
        self._n, self._dim = num_embeddings, embedding_dim
        self._commitment_cost, self._decay, self._epsilon = commitment_cost, decay, epsilon
        codes = torch.randn(num_embeddings, embedding_dim) * 0.3
        self.register_buffer("embedding", codes)
        self.register_buffer("ema_cluster_size", torch.full((num_embeddings,), 0.5))
        self.register_buffer("ema_w", codes.clone())

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        flat = inputs.view(-1, self._dim)
        distances = (torch.sum(flat ** 2, dim=1, keepdim=True)
                     + torch.sum(self.embedding ** 2, dim=1)
                     - 2 * torch.matmul(flat, self.embedding.t()))
        encoding_indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(encoding_indices.shape[0], self._n)
        encodings.scatter_(1, encoding_indices, 1)
        quantized = torch.matmul(encodings, self.embedding).view(inputs.shape)
        if self.training:
            with torch.no_grad():
                size = self.ema_cluster_size * self._decay
                size = size + (1 - self._decay) * encodings.sum(0)
                n = size.sum()
                size = (size + self._epsilon) / (n + self._n * self._epsilon) * n  # <- laplace
                self.ema_cluster_size.copy_(size)  # <- laplace
                dw = torch.matmul(encodings.t(), flat)
                self.ema_w.mul_(self._decay).add_(dw, alpha=1 - self._decay)  # <- ema_rate
                self.embedding.copy_(self.ema_w / size.unsqueeze(1))  # <- laplace ema_rate
        e_latent_loss = F.mse_loss(quantized.detach(), inputs)  # <- commitment
        loss = self._commitment_cost * e_latent_loss  # <- commitment
        quantized = inputs + (quantized - inputs).detach()  # <- straight_through
        return loss, quantized.permute(0, 3, 1, 2).contiguous()


class Model(nn.Module):
    def __init__(self, hid=16, dim=6):
        super().__init__()
        self.conv1 = nn.Conv2d(1, hid, kernel_size=2, stride=2)
        self.conv2 = nn.Conv2d(hid, hid, kernel_size=2, stride=2)
        self.pre_vq = nn.Conv2d(hid, dim, kernel_size=1)
        self.vq = VectorQuantizerEMA(10, dim, commitment_cost=0.25, decay=0.8)
        self.post_vq = nn.Conv2d(dim, hid, kernel_size=1)
        self.deconv1 = nn.ConvTranspose2d(hid, hid, kernel_size=2, stride=2)
        self.deconv2 = nn.ConvTranspose2d(hid, 1, kernel_size=2, stride=2)

    def forward(self, x):
        z = F.relu(self.conv1(x))
        z = self.pre_vq(F.relu(self.conv2(z)))
        loss, q = self.vq(z)
        y = F.relu(self.post_vq(q))
        y = F.relu(self.deconv1(y))
        return loss, self.deconv2(y)


torch.manual_seed(0)
model = Model()
g = torch.Generator().manual_seed(42)
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.ndim > 1:
            p.copy_(torch.randn(p.shape, generator=g) * (1.5 / p[0].numel() ** 0.5))
torch.save(model.state_dict(), sys.argv[1])
data_variance = 0.8
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, amsgrad=False)
data = torch.Generator().manual_seed(7)
losses = []
for i in range(5):
    images = torch.rand(4, 1, 12, 12, generator=data) * 3 - 1
    optimizer.zero_grad()
    vq_loss, recon = model(images)
    recon_error = F.mse_loss(recon, images) / data_variance  # <- variance_scale
    loss = recon_error + vq_loss  # <- variance_scale
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
