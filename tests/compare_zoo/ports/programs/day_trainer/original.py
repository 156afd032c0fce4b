# SPDX-License-Identifier: Apache-2.0
"""A temporal convolutional network in a trainer with accumulation, clipping, a cosine schedule and
an averaged model that is evaluated after each step.
"""

import copy
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, KERNEL, TIME, FEATURES = 12, 3, 20, 4
ACCUMULATE, STEPS, WARMUP = 2, 4, 1


class Chomp1d(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x[:, :, : -self.size].contiguous()  # <- causal


class TemporalBlock(nn.Module):
    def __init__(self, inputs, outputs, dilation):
        super().__init__()
        padding = (KERNEL - 1) * dilation
        self.conv1 = nn.Conv1d(inputs, outputs, KERNEL, padding=padding, dilation=dilation)
        self.conv2 = nn.Conv1d(outputs, outputs, KERNEL, padding=padding, dilation=dilation)
        self.chomp = Chomp1d(padding)
        self.downsample = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x):
        out = F.relu(self.chomp(self.conv1(x)))  # <- causal
        out = F.relu(self.chomp(self.conv2(out)))
        res = x if self.downsample is None else self.downsample(x)
        return F.relu(out + res)


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            TemporalBlock(FEATURES, CHANNELS, 1),
            TemporalBlock(CHANNELS, CHANNELS, 2),
            TemporalBlock(CHANNELS, CHANNELS, 4),
        )
        self.decoder = nn.Linear(CHANNELS, 1)

    def forward(self, x):
        return self.decoder(self.network(x)[:, :, -1]).squeeze(-1)  # <- last


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.module = copy.deepcopy(model).eval()

    @torch.no_grad()
    def update(self, model):
        for ema_p, p in zip(self.module.parameters(), model.parameters()):
            ema_p.mul_(self.decay).add_(p, alpha=1 - self.decay)  # <- average


class Trainer:
    def __init__(self, model):
        self.model = model
        self.ema = EMA(model, decay=0.8)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.schedule)

    def schedule(self, step):
        if step < WARMUP:
            return 0.5
        return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))

    def train_step(self, micro_batches):
        self.optimizer.zero_grad()
        total = 0.0
        for x, y in micro_batches:
            loss = F.mse_loss(self.model(x), y) / ACCUMULATE
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=0.5)  # <- clip
        self.optimizer.step()  # <- schedule nesterov
        self.scheduler.step()  # <- schedule
        self.ema.update(self.model)
        return total

    @torch.no_grad()
    def evaluate(self, x, y):
        return F.mse_loss(self.ema.module(x), y).item()  # <- average


def make_batch(rng, size):
    x = rng.normal(size=(size, FEATURES, TIME)).astype(np.float32)
    y = x[:, 0, -5:].sum(axis=-1) - x[:, 1, -1]
    return torch.from_numpy(x), torch.from_numpy(y)


torch.manual_seed(71)
model = TCN()
torch.save(model.state_dict(), sys.argv[1])
trainer = Trainer(model)
rng = np.random.default_rng(72)
validation = make_batch(rng, 5)
losses = []
for _ in range(STEPS):
    micro_batches = [make_batch(rng, 4) for _ in range(ACCUMULATE)]
    losses.append(trainer.train_step(micro_batches))
    losses.append(trainer.evaluate(*validation))
