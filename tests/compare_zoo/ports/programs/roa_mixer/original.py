# SPDX-License-Identifier: Apache-2.0
"""An MLP-mixer regressor under torch.compile, gradients accumulated over micro-batches, SGD with a decaying rate."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(5)

TOKENS, CHANNELS, FEATURES, DEPTH, TARGETS = 8, 16, 6, 2, 3
STEPS, ACCUMULATE, MICRO = 5, 2, 8


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))  # <- gelu_sigmoid


class MixerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.RMSNorm(CHANNELS, eps=1e-6)
        self.token_mlp = Mlp(TOKENS, 2 * TOKENS)
        self.norm2 = nn.RMSNorm(CHANNELS, eps=1e-6)
        self.channel_mlp = Mlp(CHANNELS, 2 * CHANNELS)

    def forward(self, x):
        x = x + self.token_mlp(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mlp(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(FEATURES, CHANNELS)
        self.blocks = nn.Sequential(*[MixerBlock() for _ in range(DEPTH)])
        self.norm = nn.RMSNorm(CHANNELS, eps=1e-6)
        self.head = nn.Linear(CHANNELS, TARGETS)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(self.norm(x).mean(dim=1))


def make_data(gen, rows):
    x = torch.randn(rows, TOKENS, FEATURES, generator=gen)
    y = torch.stack([x[:, 0].sum(1), x[:, :, 1].amax(1) * 2, (x[:, 2] * x[:, 3]).sum(1)], dim=1)
    y = (y - y.mean(0)) / y.std(0)  # <- target_std
    return x, y


model = Mixer()
torch.save(model.state_dict(), sys.argv[1])
compiled = torch.compile(model)

optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # <- velocity_form
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
gen = torch.Generator().manual_seed(31)
inputs, targets = make_data(gen, 48)  # <- target_std

losses = []
for step in range(STEPS):
    order = torch.randperm(len(inputs), generator=gen)[: ACCUMULATE * MICRO]
    optimizer.zero_grad()
    total = 0.0
    for rows in order.split(MICRO):
        prediction = compiled(inputs[rows])
        loss = F.smooth_l1_loss(prediction, targets[rows], beta=0.5)  # <- huber_scale
        (loss / ACCUMULATE).backward()  # <- accumulate_sum
        total += loss.item() / ACCUMULATE
    optimizer.step()  # <- velocity_form
    scheduler.step()
    losses.append(total)
print(losses)
