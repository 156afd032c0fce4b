# SPDX-License-Identifier: Apache-2.0
"""WaveNet-like autoregressive model of mu-law audio with weight-normalised causal convolutions."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

torch.set_num_threads(1)
torch.manual_seed(2016)

QUANT = 32
RESIDUAL, SKIP, KERNEL = 12, 16, 3
DILATIONS = (1, 2, 4)
LENGTH, BATCH, STEPS = 40, 4, 5


def mu_law_encode(wave, channels=QUANT):
    mu = channels - 1
    magnitude = torch.log1p(mu * wave.abs()) / math.log1p(mu)
    signal = torch.sign(wave) * magnitude
    return ((signal + 1) / 2 * mu + 0.5).long()  # <- mulaw_floor


def normed_conv(cin, cout, kernel=1, **kwargs):
    return weight_norm(nn.Conv1d(cin, cout, kernel, **kwargs))  # <- norm_detached


class CausalConv1d(nn.Module):
    def __init__(self, cin, cout, dilation):
        super().__init__()
        self.left = (KERNEL - 1) * dilation  # <- same_padding
        self.conv = normed_conv(cin, cout, KERNEL, dilation=dilation)

    def forward(self, x):
        return self.conv(F.pad(x, (self.left, 0)))  # <- same_padding norm_detached


class ResidualBlock(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.dilated = CausalConv1d(RESIDUAL, 2 * RESIDUAL, dilation)
        self.to_residual = normed_conv(RESIDUAL, RESIDUAL)
        self.to_skip = normed_conv(RESIDUAL, SKIP)

    def forward(self, x):
        filt, gate = self.dilated(x).chunk(2, dim=1)  # <- gate_swapped same_padding norm_detached
        h = torch.tanh(filt) * torch.sigmoid(gate)  # <- gate_swapped
        return (x + self.to_residual(h)) * math.sqrt(0.5), self.to_skip(h)  # <- norm_detached


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(QUANT, RESIDUAL)
        self.blocks = nn.ModuleList(ResidualBlock(d) for d in DILATIONS)
        self.head1 = nn.Conv1d(SKIP, SKIP, 1)
        self.head2 = nn.Conv1d(SKIP, QUANT, 1)

    @property
    def receptive_field(self):
        return (KERNEL - 1) * sum(DILATIONS) + 1

    def forward(self, codes):
        x = self.embed(codes).transpose(1, 2)
        skips = 0
        for block in self.blocks:
            x, skip = block(x)
            skips = skips + skip
        return self.head2(F.relu(self.head1(F.relu(skips))))


class Chords:
    """Sums of two sine waves with noise, in -1 .. 1."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self):
        freq = 0.02 + 0.2 * torch.rand(BATCH, 2, 1, generator=self.generator)
        phase = 2 * math.pi * torch.rand(BATCH, 2, 1, generator=self.generator)
        wave = torch.sin(2 * math.pi * freq * torch.arange(LENGTH + 1) + phase).sum(1) * 0.4
        return (wave + 0.05 * torch.randn(wave.shape, generator=self.generator)).clamp(-1, 1)


model = WaveNet()
with torch.no_grad():
    for block in model.blocks:
        block.dilated.conv.parametrizations.weight.original0.mul_(1.5)
torch.save(model.state_dict(), sys.argv[1])

data = Chords(seed=12)
optimizer = torch.optim.RMSprop(model.parameters(), lr=6e-3, alpha=0.9, eps=1e-6)  # <- rms_ones
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
losses = []
for step in range(STEPS):
    codes = mu_law_encode(data.draw())  # <- mulaw_floor
    logits = model(codes[:, :-1])
    skip_to = model.receptive_field - 1
    loss = F.cross_entropy(logits[:, :, skip_to:], codes[:, 1 + skip_to:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rms_ones
    scheduler.step()
    losses.append(loss.item())
print(losses)
