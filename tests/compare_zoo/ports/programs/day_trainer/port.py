# SPDX-License-Identifier: Apache-2.0
"""The temporal network with time before channels, trained in one loop on whole batches."""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

WIDTH, TAPS, LENGTH, INPUTS = 12, 3, 20, 4
UPDATES, WARM, PEAK, DECAY = 4, 1, 0.1, 0.8


class CausalConv(nn.Module):
    """Sums of x[t], x[t - d], x[t - 2d] through a matrix each."""

    def __init__(self, cin, cout, dilation):
        super().__init__()
        self.dilation = dilation
        self.taps = nn.ModuleList(nn.Linear(cin, cout, bias=False) for _ in range(TAPS))
        self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, x):
        reach = (TAPS - 1) * self.dilation
        past = torch.cat([x.new_zeros(x.shape[0], reach, x.shape[2]), x], dim=1)  # <- causal
        time = x.shape[1]
        y = self.bias
        for i, tap in enumerate(self.taps):
            y = y + tap(past[:, i * self.dilation : i * self.dilation + time])  # <- causal
        return y


class Block(nn.Module):
    def __init__(self, cin, cout, dilation):
        super().__init__()
        self.first = CausalConv(cin, cout, dilation)
        self.second = CausalConv(cout, cout, dilation)
        self.skip = nn.Linear(cin, cout) if cin != cout else nn.Identity()

    def forward(self, x):
        y = torch.relu(self.second(torch.relu(self.first(x))))
        return torch.relu(y + self.skip(x))


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            [Block(INPUTS, WIDTH, 1), Block(WIDTH, WIDTH, 2), Block(WIDTH, WIDTH, 4)]
        )
        self.readout = nn.Linear(WIDTH, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        final = x[:, -1]  # <- last
        return self.readout(final)[:, 0]  # <- last


def state_of(tcn):
    state = {"readout.weight": tcn["decoder.weight"], "readout.bias": tcn["decoder.bias"]}
    for i in range(3):
        for ours, theirs in (("first", "conv1"), ("second", "conv2")):
            kernel = tcn[f"network.{i}.{theirs}.weight"]
            for tap in range(TAPS):
                state[f"blocks.{i}.{ours}.taps.{tap}.weight"] = kernel[:, :, tap]
            state[f"blocks.{i}.{ours}.bias"] = tcn[f"network.{i}.{theirs}.bias"]
    state["blocks.0.skip.weight"] = tcn["network.0.downsample.weight"][:, :, 0]
    state["blocks.0.skip.bias"] = tcn["network.0.downsample.bias"]
    return state


def rate(step):
    if step < WARM:
        return PEAK / 2
    return PEAK * (1 + math.cos(math.pi * (step - WARM) / (UPDATES - WARM))) / 2


def batch(rng, size):
    x = rng.normal(size=(size, INPUTS, LENGTH)).astype(np.float32)
    return x.transpose(0, 2, 1), x[:, 0, -5:].sum(axis=-1) - x[:, 1, -1]


net = Forecaster()
net.load_state_dict(state_of(torch.load(sys.argv[1])))
average = {name: p.detach().clone() for name, p in net.named_parameters()}
sgd = torch.optim.SGD(net.parameters(), lr=PEAK, momentum=0.9, nesterov=True)
rng = np.random.default_rng(72)
held_x, held_y = (torch.tensor(part) for part in batch(rng, 5))
losses = []
for step in range(UPDATES):
    sgd.param_groups[0]["lr"] = rate(step)  # <- schedule
    parts = [batch(rng, 4), batch(rng, 4)]
    x, y = (torch.tensor(np.concatenate(part)) for part in zip(*parts))
    sgd.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)  # <- clip
    sgd.step()  # <- schedule nesterov
    losses.append(loss.item())
    with torch.no_grad():
        for name, p in net.named_parameters():
            average[name].lerp_(p, 1 - DECAY)  # <- average
        guess = functional_call(net, average, held_x)  # <- average
        losses.append((guess - held_y).square().mean().item())
