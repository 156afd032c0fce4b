# SPDX-License-Identifier: Apache-2.0
"""A Fourier neural operator in one dimension, from the initial state of a flow to a later one."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

S, NTRAIN, BATCH, EPOCHS = 24, 12, 4, 2
torch.manual_seed(0)


class SpectralConv1d(nn.Module):
    def __init__(self, in_channels, out_channels, modes1):
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.modes1 = modes1
        self.scale = 1 / (in_channels * out_channels)
        self.weights1 = nn.Parameter(
            self.scale * torch.rand(in_channels, out_channels, modes1, dtype=torch.cfloat)
        )

    def compl_mul1d(self, inputs, weights):
        return torch.einsum("bix,iox->box", inputs, weights)  # <- product

    def forward(self, x):
        batchsize = x.shape[0]
        x_ft = torch.fft.rfft(x)
        out_ft = torch.zeros(batchsize, self.out_channels, x.size(-1) // 2 + 1, dtype=torch.cfloat)
        out_ft[:, :, : self.modes1] = self.compl_mul1d(  # <- product
            x_ft[:, :, : self.modes1], self.weights1
        )
        return torch.fft.irfft(out_ft, n=x.size(-1))  # <- doubled


class FNO1d(nn.Module):
    def __init__(self, modes, width):
        super().__init__()
        self.fc0 = nn.Linear(2, width)
        self.conv0 = SpectralConv1d(width, width, modes)
        self.conv1 = SpectralConv1d(width, width, modes)
        self.conv2 = SpectralConv1d(width, width, modes)
        self.w0 = nn.Conv1d(width, width, 1)
        self.w1 = nn.Conv1d(width, width, 1)
        self.w2 = nn.Conv1d(width, width, 1)
        self.fc1 = nn.Linear(width, 16)
        self.fc2 = nn.Linear(16, 1)

    def forward(self, x):
        grid = self.get_grid(x.shape)
        x = torch.cat((x, grid), dim=-1)
        x = self.fc0(x)
        x = x.permute(0, 2, 1)

        x1 = self.conv0(x)
        x2 = self.w0(x)
        x = x1 + x2
        x = F.gelu(x)

        x1 = self.conv1(x)
        x2 = self.w1(x)
        x = x1 + x2
        x = F.gelu(x)

        x1 = self.conv2(x)
        x2 = self.w2(x)
        x = x1 + x2  # <- activated

        x = x.permute(0, 2, 1)
        x = self.fc1(x)  # <- activated
        x = F.gelu(x)
        return self.fc2(x)

    def get_grid(self, shape):
        batchsize, size_x = shape[0], shape[1]
        gridx = torch.tensor(np.linspace(0, 1, size_x), dtype=torch.float)  # <- grid
        return gridx.reshape(1, size_x, 1).repeat([batchsize, 1, 1])


class UnitGaussianNormalizer:
    def __init__(self, x, eps=0.00001):
        self.mean = torch.mean(x, 0)
        self.std = torch.std(x, 0)  # <- deviation
        self.eps = eps

    def encode(self, x):
        return (x - self.mean) / (self.std + self.eps)  # <- deviation

    def decode(self, x):
        return x * (self.std + self.eps) + self.mean  # <- deviation


class LpLoss:
    def rel(self, x, y):
        num_examples = x.size()[0]
        diff_norms = torch.norm(x.reshape(num_examples, -1) - y.reshape(num_examples, -1), 2, 1)
        y_norms = torch.norm(y.reshape(num_examples, -1), 2, 1)
        return torch.sum(diff_norms / y_norms)


rng = np.random.default_rng(5)
grid = np.linspace(0, 2 * np.pi, S, endpoint=False)
waves = rng.normal(size=(NTRAIN, 4, 2)) / np.arange(1, 5)[:, None]
angles = np.arange(1, 5)[:, None] * grid
x_train = waves[..., 0] @ np.sin(angles) + waves[..., 1] @ np.cos(angles) + 0.3
y_train = np.roll(x_train, 3, axis=1) * 0.6 + 0.2 * x_train**2
x_train = torch.tensor(x_train, dtype=torch.float)
y_train = torch.tensor(y_train, dtype=torch.float)

x_normalizer = UnitGaussianNormalizer(x_train)
x_train = x_normalizer.encode(x_train)
y_normalizer = UnitGaussianNormalizer(y_train)
x_train = x_train.reshape(NTRAIN, S, 1)

model = FNO1d(5, 6)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, weight_decay=1e-3)  # <- decay
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)  # <- halving
myloss = LpLoss()
losses = []
for _ in range(EPOCHS):
    for i in range(0, NTRAIN, BATCH):
        x, y = x_train[i : i + BATCH], y_train[i : i + BATCH]
        optimizer.zero_grad()
        out = model(x).reshape(BATCH, S)
        out = y_normalizer.decode(out)
        loss = myloss.rel(out, y)
        loss.backward()
        optimizer.step()  # <- decay halving
        scheduler.step()  # <- halving
        losses.append(loss.item())
