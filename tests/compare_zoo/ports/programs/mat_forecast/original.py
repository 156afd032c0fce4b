# SPDX-License-Identifier: Apache-2.0
"""Load forecasting: reversible instance norm, dilated causal convolutions, quantile heads."""

import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

HISTORY, HORIZON, SERIES, WIDTH = 24, 6, 3, 8
QUANTILES = [0.1, 0.5, 0.9]


class RevIN(nn.Module):
    def __init__(self, n_series, eps=1e-3):
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(1 + 0.1 * torch.randn(n_series))
        self.shift = nn.Parameter(0.1 * torch.randn(n_series))

    def normalize(self, x):
        self.mean = x.mean(dim=-1, keepdim=True).detach()
        var = x.var(dim=-1, keepdim=True, unbiased=False).detach()  # <- revin_variance
        self.std = torch.sqrt(var + self.eps)  # <- revin_variance
        return (x - self.mean) / self.std * self.gain[:, None] + self.shift[:, None]

    def denormalize(self, y):
        # y: batch, series, horizon, quantile
        y = (y - self.shift[:, None, None]) / self.gain[:, None, None]
        return y * self.std[..., None] + self.mean[..., None]


class CausalBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.left = 2 * dilation  # <- causal_pad
        self.conv = nn.Conv1d(width, 2 * width, kernel_size=3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, kernel_size=1)

    def forward(self, x):
        h = self.conv(F.pad(x, (self.left, 0)))  # <- causal_pad
        value, gate = h.chunk(2, dim=1)  # <- gate_order
        h = torch.tanh(value) * torch.sigmoid(gate)  # <- gate_order
        return x + self.mix(h)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.revin = RevIN(SERIES)
        self.inp = nn.Conv1d(1, WIDTH, 1)
        self.blocks = nn.ModuleList([CausalBlock(WIDTH, d) for d in (1, 2, 4)])
        self.head = nn.Linear(WIDTH, HORIZON * len(QUANTILES))

    def forward(self, x):
        b = x.shape[0]
        z = self.revin.normalize(x)
        h = self.inp(z.reshape(b * SERIES, 1, HISTORY))
        for block in self.blocks:
            h = block(h)
        last = F.gelu(h[:, :, -1])
        out = self.head(last).view(b, SERIES, HORIZON, len(QUANTILES))
        return self.revin.denormalize(out)


def pinball(pred, target):
    loss = 0.0
    for i, q in enumerate(QUANTILES):
        err = target - pred[..., i]
        loss = loss + torch.max(q * err, (q - 1) * err).mean()
    return loss / len(QUANTILES)


def make_batches(n_steps, batch=4):
    gen = torch.Generator().manual_seed(77)
    t = torch.arange(HISTORY + HORIZON, dtype=torch.float32)
    batches = []
    for _ in range(n_steps):
        phase = torch.rand(batch, SERIES, 1, generator=gen) * 6.28
        level = torch.randn(batch, SERIES, 1, generator=gen) * 2
        noise = torch.randn(batch, SERIES, HISTORY + HORIZON, generator=gen)
        full = level + torch.sin(t * 0.5 + phase) * 1.5 + 0.2 * noise
        batches.append((full[..., :HISTORY], full[..., HISTORY:]))
    return batches


torch.manual_seed(0)
model = Forecaster()
torch.save(model.state_dict(), sys.argv[1])
decay = [p for n, p in model.named_parameters() if p.ndim > 1]
plain = [p for n, p in model.named_parameters() if p.ndim <= 1]
optimizer = torch.optim.SGD(  # <- nesterov_lookahead
    [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
    lr=0.05,
    momentum=0.9,
    nesterov=True,
)  # <- nesterov_lookahead
STEPS, WARMUP = 5, 2
scheduler = torch.optim.lr_scheduler.LambdaLR(  # <- cosine_start
    optimizer,
    lambda s: (
        (s + 1) / WARMUP
        if s < WARMUP  # <- cosine_start
        else 0.5 * (1 + math.cos(math.pi * (s - WARMUP) / (STEPS - WARMUP)))
    ),
)  # <- cosine_start
losses = []
for history, future in make_batches(STEPS):
    optimizer.zero_grad()
    loss = pinball(model(history), future)
    loss.backward()
    optimizer.step()  # <- nesterov_lookahead
    scheduler.step()  # <- cosine_start
    losses.append(loss.item())
print(losses)
