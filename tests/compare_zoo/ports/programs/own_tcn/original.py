# SPDX-License-Identifier: Apache-2.0
"""A temporal convolutional forecaster: weight-normed dilated causal Conv1d on batches of ragged
series, Huber loss over the real steps, gradient clipping and AdamW.
"""

import sys

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

FEATURES, CHANNELS, KERNEL, BATCH, LENGTH = 4, (10, 10, 12), 3, 6, 16


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super().__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, : -self.chomp_size]


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, dilation):
        super().__init__()
        padding = (KERNEL - 1) * dilation
        self.conv1 = weight_norm(
            nn.Conv1d(n_inputs, n_outputs, KERNEL, padding=padding, dilation=dilation)
        )  # <- taps dilation
        self.chomp1 = Chomp1d(padding)
        self.conv2 = weight_norm(
            nn.Conv1d(n_outputs, n_outputs, KERNEL, padding=padding, dilation=dilation)
        )  # <- taps dilation
        self.chomp2 = Chomp1d(padding)
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None
        self.relu = nn.ReLU()

    def forward(self, x):
        out = self.relu(self.chomp1(self.conv1(x)))  # <- taps dilation
        out = self.relu(self.chomp2(self.conv2(out)))  # <- taps dilation
        residual = x if self.downsample is None else self.downsample(x)
        return self.relu(out + residual)


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = (FEATURES, *CHANNELS)
        self.network = nn.Sequential(
            *(TemporalBlock(sizes[i], sizes[i + 1], 2**i) for i in range(len(CHANNELS)))
        )  # <- dilation
        self.head = nn.Linear(CHANNELS[-1], FEATURES)

    def forward(self, x):
        return self.head(self.network(x.transpose(1, 2)).transpose(1, 2))


def batches(generator):
    noise = 0.3 * torch.randn(BATCH, LENGTH + 1, FEATURES, generator=generator)
    phase = 6 * torch.rand(BATCH, 1, FEATURES, generator=generator)
    series = 2 * torch.sin(0.7 * torch.arange(LENGTH + 1.0)[:, None] + phase) + noise
    lengths = torch.randint(5, LENGTH + 1, (BATCH,), generator=generator)
    mask = torch.arange(LENGTH) < lengths[:, None]
    return series[:, :-1], series[:, 1:], mask


torch.manual_seed(31)
model = TCN()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(
    model.parameters(), lr=0.02, eps=1e-3, weight_decay=0.2
)  # <- decoupled
criterion = nn.SmoothL1Loss(reduction="none", beta=0.5)
generator = torch.Generator().manual_seed(32)
losses = []
for _ in range(4):
    inputs, targets, mask = batches(generator)
    errors = criterion(model(inputs), targets).mean(-1)
    loss = (errors * mask).sum() / mask.sum()  # <- averaged
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clipped averaged
    optimizer.step()  # <- clipped decoupled
    losses.append(loss.item())
