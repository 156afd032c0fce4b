# SPDX-License-Identifier: Apache-2.0
"""The same with the mean kept by a class over a dictionary, and plain functions."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(12, 24), nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x):
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


class Averaged:
    def __init__(self, net, momentum=0.9):
        self.net, self.momentum = net, momentum
        self.shadow = {name: value.detach().clone() for name, value in net.named_parameters()}

    def update(self):
        for name, value in self.net.named_parameters():
            shadow = self.shadow[name]
            shadow.copy_(torch.lerp(value.detach(), shadow, self.momentum))  # <- decay early

    def __call__(self, x):
        return torch.func.functional_call(self.net, self.shadow, (x,))


old = torch.load(sys.argv[1])
net = Net()
places = {"0": "fc1", "2": "fc2", "4": "fc3"}
net.load_state_dict({places[name[0]] + name[1:]: value for name, value in old.items()})
mean = Averaged(net)
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
rng = np.random.default_rng(3)
losses = []
for _ in range(3):
    x = torch.from_numpy(rng.standard_normal((8, 12), dtype=np.float32))
    noise = torch.from_numpy(0.1 * rng.standard_normal((8, 12), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 5, 8))
    target = torch.softmax(mean(x), 1).detach()
    logits = net(x + noise)
    probabilities = torch.softmax(logits, 1)
    consistency = ((probabilities - target) ** 2).mean()  # <- consistency
    loss = F.cross_entropy(logits, y) + 3 * consistency  # <- weight consistency
    sgd.zero_grad()
    loss.backward()
    sgd.step()  # <- attached
    mean.update()
    losses.append(loss.item())
