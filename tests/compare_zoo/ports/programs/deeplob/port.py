# SPDX-License-Identifier: Apache-2.0
"""The same network with channels last as Keras has it: convolutions as sums of products, an LSTM
cell in a loop, probabilities at the end, Adam by hand.
"""

import sys

import numpy as np
import torch
from torch import nn

N_LEVELS, STEPS, AHEAD, SAMPLES = 3, 16, 5, 12
CHANNELS, UNITS = 8, 16


def leaky(x):
    return torch.where(x > 0, x, 0.01 * x)  # <- slope


class Across(nn.Module):
    """A convolution over neighbouring columns that do not overlap."""

    def __init__(self, columns, inputs):
        super().__init__()
        self.columns = columns
        self.kernel = nn.Parameter(torch.empty(columns * inputs, CHANNELS))
        self.bias = nn.Parameter(torch.empty(CHANNELS))

    def forward(self, x):
        samples, steps, width, channels = x.shape
        x = x.reshape(samples, steps, width // self.columns, self.columns * channels)
        return x @ self.kernel + self.bias


class Along(nn.Module):
    """A convolution over time; the output is as long as the input."""

    def __init__(self, taps):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(taps, CHANNELS, CHANNELS))
        self.bias = nn.Parameter(torch.empty(CHANNELS))

    def forward(self, x):
        taps, steps = len(self.kernel), x.shape[1]
        before = (taps - 1) // 2  # <- pad
        x = nn.functional.pad(x, (0, 0, 0, 0, before, taps - 1 - before))  # <- pad
        total = self.bias
        for tap, kernel in enumerate(self.kernel):
            total = total + x[:, tap : tap + steps] @ kernel  # <- pad
        return total


class Stage(nn.Module):
    def __init__(self, columns, inputs):
        super().__init__()
        self.across = Across(columns, inputs)
        self.first, self.second = Along(4), Along(4)

    def forward(self, x):
        return leaky(self.second(leaky(self.first(leaky(self.across(x))))))


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.point_a, self.time_a = Across(1, CHANNELS), Along(3)
        self.point_b, self.time_b = Across(1, CHANNELS), Along(5)
        self.point_c = Across(1, CHANNELS)

    def forward(self, x):
        a = leaky(self.time_a(leaky(self.point_a(x))))
        b = leaky(self.time_b(leaky(self.point_b(x))))
        edged = nn.functional.pad(x, (0, 0, 0, 0, 1, 1), value=-torch.inf)  # <- pooling
        highest = edged.unfold(1, 3, 1).amax(-1)  # <- pooling
        c = leaky(self.point_c(highest))
        return torch.cat([a, b, c], dim=-1)


class Cell(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(inputs, 4 * UNITS))
        self.recurrent = nn.Parameter(torch.empty(UNITS, 4 * UNITS))
        self.bias = nn.Parameter(torch.empty(2, 4 * UNITS))

    def forward(self, x, h, c):
        z = x @ self.kernel + h @ self.recurrent + self.bias.sum(0)
        i, f, g, o = z.chunk(4, dim=-1)  # <- gates
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # <- gates
        return torch.sigmoid(o) * torch.tanh(c), c  # <- gates


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([Stage(2, 1), Stage(2, CHANNELS), Stage(N_LEVELS, CHANNELS)])
        self.mixed = Mixed()
        self.cell = Cell(3 * CHANNELS)
        self.dense = nn.Linear(UNITS, 3)

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        x = self.mixed(x)[:, :, 0]
        h = c = x.new_zeros(len(x), UNITS)
        for step in range(STEPS):
            h, c = self.cell(x[:, step], h, c)
        return torch.softmax(self.dense(h), dim=-1)


def convert(old):
    new = {"dense.weight": old["fc.weight"], "dense.bias": old["fc.bias"]}

    def across(mine, theirs):
        kernel = old[theirs + ".weight"]  # out, in, 1, columns
        new[mine + ".kernel"] = kernel[:, :, 0].permute(2, 1, 0).reshape(-1, CHANNELS)
        new[mine + ".bias"] = old[theirs + ".bias"]

    def along(mine, theirs):
        new[mine + ".kernel"] = old[theirs + ".weight"][..., 0].permute(2, 1, 0)
        new[mine + ".bias"] = old[theirs + ".bias"]

    for number in range(3):
        across(f"stages.{number}.across", f"block{number + 1}.across")
        along(f"stages.{number}.first", f"block{number + 1}.along1")
        along(f"stages.{number}.second", f"block{number + 1}.along2")
    across("mixed.point_a", "inception.reduce3")
    along("mixed.time_a", "inception.conv3")
    across("mixed.point_b", "inception.reduce5")
    along("mixed.time_b", "inception.conv5")
    across("mixed.point_c", "inception.project")
    new["cell.kernel"] = old["lstm.weight_ih_l0"].T
    new["cell.recurrent"] = old["lstm.weight_hh_l0"].T
    new["cell.bias"] = torch.stack([old["lstm.bias_ih_l0"], old["lstm.bias_hh_l0"]])
    return new


class Adam:
    def __init__(self, parameters, rate, epsilon):
        self.parameters, self.rate, self.epsilon, self.t = list(parameters), rate, epsilon, 0
        self.m = [torch.zeros_like(p) for p in self.parameters]
        self.v = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def update(self, gradients):
        self.t += 1
        for p, m, v, g in zip(self.parameters, self.m, self.v, gradients):
            m.copy_(0.9 * m + 0.1 * g)
            v.copy_(0.999 * v + 0.001 * g * g)
            m_hat, v_hat = m / (1 - 0.9**self.t), v / (1 - 0.999**self.t)
            p.sub_(self.rate * m_hat / (v_hat.sqrt() + self.epsilon))  # <- eps


rng = np.random.default_rng(7)
price = 100 + rng.normal(0, 0.3, 160).cumsum()
gap = 0.05 * np.arange(1, N_LEVELS + 1) + 0.02 * rng.random((160, N_LEVELS))
sizes = rng.integers(1, 400, (160, N_LEVELS, 2))
table = np.zeros((160, N_LEVELS, 4))
table[:, :, 0], table[:, :, 1] = price[:, None] + gap, sizes[:, :, 0]
table[:, :, 2], table[:, :, 3] = price[:, None] - gap, sizes[:, :, 1]
table = table.reshape(160, -1)
table = (table - table.mean(0)) / table.std(0)  # <- zscored
later = [price[t + 1 : t + 1 + AHEAD].mean() for t in range(160 - AHEAD)]  # <- horizon
moves = np.array(later) / price[: 160 - AHEAD] - 1
classes = 1 + (moves > 0.004).astype(int) - (moves < -0.004).astype(int)

network = Network()
network.load_state_dict(convert(torch.load(sys.argv[1])))
adam = Adam(network.parameters(), rate=0.01, epsilon=1.0)
losses = []
for _ in range(3):
    last = rng.integers(STEPS, len(classes), SAMPLES)
    rows = last[:, None] + np.arange(1 - STEPS, 1)
    inputs = torch.tensor(table[rows][..., None], dtype=torch.float32)  # <- zscored
    wanted = torch.eye(3)[torch.tensor(classes[last])]  # <- horizon
    probabilities = network(inputs)
    loss = -(wanted * torch.log(probabilities)).sum(1).mean()  # <- twice
    adam.update(torch.autograd.grad(loss, list(network.parameters())))
    losses.append(loss.item())
