# SPDX-License-Identifier: Apache-2.0
"""Forecasting several noisy sines with a stateful two-layer LSTM and truncated backpropagation."""
import sys

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(23)

SERIES, CHANNELS, HIDDEN, CHUNK, STEPS = 6, 3, 12, 6, 4


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(CHANNELS, HIDDEN, num_layers=2, batch_first=True)
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, CHANNELS)

    def forward(self, x, state=None):
        out, state = self.lstm(x, state)
        # residual forecast: predict the change
        return x + self.head(self.norm(out)), state


def make_series(rng, n, length):
    t = np.arange(length)
    freq = rng.uniform(0.1, 0.6, size=(n, 1, CHANNELS))
    phase = rng.uniform(0, 2 * np.pi, size=(n, 1, CHANNELS))
    wave = np.sin(freq * t[None, :, None] + phase)
    return (wave + 0.05 * rng.randn(n, length, CHANNELS)).astype(np.float32)


rng = np.random.RandomState(101)
train = torch.from_numpy(make_series(rng, SERIES, CHUNK * STEPS + 1))
valid = torch.from_numpy(make_series(rng, 4, 8))

model = Forecaster()
np.savez(sys.argv[1], **{name: value.numpy() for name, value in model.state_dict().items()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
criterion = nn.SmoothL1Loss(beta=0.5)


@torch.no_grad()
def evaluate():
    model.eval()
    pred, _ = model(valid[:, :-1])
    error = (pred - valid[:, 1:]).abs().mean().item()
    model.train()
    return error


losses, history, state = [], [], None
for i in range(STEPS):
    x = train[:, i * CHUNK:(i + 1) * CHUNK]
    y = train[:, i * CHUNK + 1:(i + 1) * CHUNK + 1]
    optimizer.zero_grad()
    pred, state = model(x, state)
    loss = criterion(pred, y)
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.05)
    optimizer.step()
    scheduler.step()
    state = tuple(s.detach() for s in state)
    history.append(evaluate())
    losses.append(loss.item())
print(losses)
