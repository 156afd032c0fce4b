# SPDX-License-Identifier: Apache-2.0
"""The same with one batch of both for the judge, functional, norms by hand."""

import sys

import numpy as np
import torch
from torch import nn


class Maker(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.up = nn.Linear(6, 48), nn.ConvTranspose2d(12, 3, 4, stride=2, padding=1)
        self.g, self.b = nn.Parameter(torch.ones(12, 1, 1)), nn.Parameter(torch.zeros(12, 1, 1))

    def forward(self, z):
        x = self.fc(z).view(-1, 12, 2, 2)
        mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, correction=0)
        x = (x - mean) / (var + 1e-5).sqrt() * self.g + self.b
        return self.up(x.clamp(min=0)).tanh()  # <- range


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 12, 4, stride=2, padding=1), nn.Linear(48, 1)

    def forward(self, x):
        x = self.conv(x)
        x = torch.maximum(x, 0.2 * x)  # <- slope
        return self.fc(x.reshape(len(x), -1))[:, 0]


old = torch.load(sys.argv[1])
maker, critic = Maker(), Judge()
a, b = old["make"], old["judge"]
state = {
    "fc.weight": a["0.weight"],
    "fc.bias": a["0.bias"],
    "up.weight": a["4.weight"],
    "up.bias": a["4.bias"],
}
state |= {"g": a["2.weight"][:, None, None], "b": a["2.bias"][:, None, None]}
maker.load_state_dict(state)
critic.load_state_dict(
    {
        "conv.weight": b["0.weight"],
        "conv.bias": b["0.bias"],
        "fc.weight": b["3.weight"],
        "fc.bias": b["3.bias"],
    }
)
opt_g = torch.optim.SGD(maker.parameters(), lr=0.05, momentum=0.5)
opt_d = torch.optim.SGD(critic.parameters(), lr=0.1, momentum=0.5)
rng = np.random.default_rng(26)
losses = []
for _ in range(2):
    real = torch.from_numpy(rng.uniform(-1, 1, (5, 3, 4, 4)).astype(np.float32))
    noise = torch.from_numpy(rng.standard_normal((5, 6), dtype=np.float32))
    fake = maker(noise)
    both = critic(torch.cat((real, fake.detach())))
    good, bad = both[:5], both[5:]
    loss_d = (1 - good).clamp(min=0).mean() + (1 + bad).clamp(min=0).mean()  # <- hinge
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()  # <- rate
    loss_g = -critic(fake).mean()  # <- sign old
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    losses += [loss_d.item(), loss_g.item()]
