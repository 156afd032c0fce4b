# SPDX-License-Identifier: Apache-2.0
"""A VQ-VAE as van den Oord et al. (2017) have it: a convolutional encoder, the nearest code of a
codebook with the gradient passed straight through, a decoder, codebook and commitment losses.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, HIDDEN, DIM, CODES, BETA = 3, 20, 8, 24, 0.25


class ResidualStack(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv3 = nn.Conv2d(HIDDEN, 12, 3, padding=1, bias=False)
        self.conv1 = nn.Conv2d(12, HIDDEN, 1, bias=False)

    def forward(self, x):
        h = self.conv3(F.relu(x))
        x = x + self.conv1(F.relu(h))
        return F.relu(x)  # <- final


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(CHANNELS, HIDDEN // 2, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(HIDDEN // 2, HIDDEN, 4, stride=2, padding=1)
        self.conv3 = nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1)
        self.residual = ResidualStack()
        self.pre_vq = nn.Conv2d(HIDDEN, DIM, 1)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.pre_vq(self.residual(self.conv3(x)))


class VectorQuantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(CODES, DIM)
        self.embedding.weight.data.uniform_(-0.5, 0.5)

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        flat = inputs.view(-1, DIM)
        codes = self.embedding.weight
        distances = flat.pow(2).sum(1, keepdim=True) + codes.pow(2).sum(1)  # <- distance
        distances = distances - 2 * flat @ codes.t()  # <- distance
        indices = distances.argmin(1)  # <- distance
        quantized = self.embedding(indices).view(inputs.shape)
        e_latent_loss = F.mse_loss(quantized.detach(), inputs)  # <- commitment
        q_latent_loss = F.mse_loss(quantized, inputs.detach())  # <- commitment
        loss = q_latent_loss + BETA * e_latent_loss  # <- commitment
        quantized = inputs + (quantized - inputs).detach()  # <- straight
        return loss, quantized.permute(0, 3, 1, 2).contiguous()


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(DIM, HIDDEN, 3, padding=1)
        self.residual = ResidualStack()
        self.up1 = nn.ConvTranspose2d(HIDDEN, HIDDEN // 2, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(HIDDEN // 2, CHANNELS, 4, stride=2, padding=1)

    def forward(self, x):
        x = self.residual(self.conv1(x))
        x = F.relu(self.up1(x))  # <- flipped bias
        return self.up2(x)  # <- flipped bias


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.vq, self.decoder = Encoder(), VectorQuantizer(), Decoder()

    def forward(self, x):
        vq_loss, quantized = self.vq(self.encoder(x))
        return vq_loss, self.decoder(quantized)


rng = np.random.default_rng(31)
images = rng.random((18, CHANNELS, 16, 16), dtype=np.float32)
images = torch.from_numpy(images * rng.uniform(0.3, 1, (18, 1, 1, 1)).astype(np.float32))
data = images - 0.5
data_variance = data.var(unbiased=False)  # <- variance
torch.manual_seed(12)
model = VQVAE()
with torch.no_grad():
    model.encoder.pre_vq.weight.mul_(6)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
losses = []
for batch in data.chunk(3):
    optimizer.zero_grad()
    vq_loss, recon = model(batch)
    recon_error = F.mse_loss(recon, batch) / data_variance  # <- variance
    loss = recon_error + vq_loss
    loss.backward()
    optimizer.step()  # <- betas
    losses.append(loss.item())
