# SPDX-License-Identifier: Apache-2.0
"""The temporal convolutional network of Bai et al. (2018): dilated causal convolutions with weight
norm in residual blocks, as a model of characters whose loss leaves out the first ones.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.parametrizations import weight_norm

CHARACTERS, EMBEDDING, CHANNELS, KERNEL = 27, 12, [16, 16, 12], 3
BATCH, LENGTH, VALID = 6, 24, 16


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super().__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, : -self.chomp_size]  # <- causal


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, dilation):
        super().__init__()
        padding = (KERNEL - 1) * dilation
        self.conv1 = weight_norm(
            nn.Conv1d(n_inputs, n_outputs, KERNEL, padding=padding, dilation=dilation)
        )
        self.conv2 = weight_norm(
            nn.Conv1d(n_outputs, n_outputs, KERNEL, padding=padding, dilation=dilation)
        )
        self.chomp = Chomp1d(padding)
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None

    def forward(self, x):
        out = F.relu(self.chomp(self.conv1(x)))  # <- causal dilation normed taps
        out = F.relu(self.chomp(self.conv2(out)))  # <- causal dilation normed taps rectified
        res = x if self.downsample is None else self.downsample(x)
        return F.relu(out + res)  # <- rectified


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(CHARACTERS, EMBEDDING)
        widths = [EMBEDDING, *CHANNELS]
        blocks = [TemporalBlock(widths[i], widths[i + 1], 2**i) for i in range(len(CHANNELS))]
        self.network = nn.Sequential(*blocks)
        self.decoder = nn.Linear(CHANNELS[-1], CHARACTERS)
        self.decoder.weight = self.encoder.weight
        nn.init.normal_(self.encoder.weight, std=0.5)

    def forward(self, x):
        emb = self.encoder(x)
        y = self.network(emb.transpose(1, 2))
        return self.decoder(y.transpose(1, 2))


torch.manual_seed(8)
model = TCN()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
rng = np.random.default_rng(13)
text = rng.zipf(1.5, (BATCH, 2 * VALID + LENGTH + 1)) % CHARACTERS
losses = []
for i in range(3):
    data = torch.from_numpy(text[:, i * VALID : i * VALID + LENGTH])
    target = torch.from_numpy(text[:, i * VALID + 1 : i * VALID + LENGTH + 1])
    optimizer.zero_grad()
    output = model(data)
    eff_history = LENGTH - VALID
    final_output = output[:, eff_history:].reshape(-1, CHARACTERS)  # <- history
    final_target = target[:, eff_history:].reshape(-1)  # <- history
    loss = F.cross_entropy(final_output, final_target)  # <- history
    loss.backward()
    clip_grad_norm_(model.parameters(), 0.15)  # <- clip
    optimizer.step()  # <- clip
    losses.append(loss.item())
