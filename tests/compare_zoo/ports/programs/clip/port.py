# SPDX-License-Identifier: Apache-2.0
"""The same written from the paper's pseudo-code, log-softmax by hand."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.hidden, self.norm = nn.Linear(size, 32), nn.LayerNorm(32)
        self.project = nn.Parameter(torch.empty(32, 16))

    def forward(self, x):
        x = self.norm(self.hidden(x).clamp(min=0))
        return x @ self.project


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.see, self.read = Encoder(20), Encoder(12)
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def forward(self, images, texts):
        i_e = F.normalize(self.see(images), dim=1)  # <- norm axis
        t_e = F.normalize(self.read(texts), dim=1)  # <- norm
        similar = torch.einsum("id,td->it", i_e, t_e)
        similar = similar * torch.exp(self.log_temperature)  # <- temperature
        by_image = similar.log_softmax(1).diagonal()  # <- oneway
        by_text = similar.log_softmax(0).diagonal()  # <- oneway
        return -0.5 * (by_image + by_text).mean()  # <- oneway halved


def carried(old):
    new = {"log_temperature": old["logit_scale"]}
    for mine, theirs in (("see", "image"), ("read", "text")):
        for place, number in (("hidden", 0), ("norm", 2)):
            for kind in ("weight", "bias"):
                new[f"{mine}.{place}.{kind}"] = old[f"{theirs}.net.{number}.{kind}"]
        new[f"{mine}.project"] = old[f"{theirs}.net.3.weight"].T
    return new


net = Model()
net.load_state_dict(carried(torch.load(sys.argv[1])))
adam = torch.optim.Adam(net.parameters(), lr=1e-2)
rng = np.random.default_rng(4)
losses = []
for _ in range(3):
    pictures = torch.from_numpy(rng.standard_normal((8, 20), dtype=np.float32))
    captions = torch.from_numpy(rng.standard_normal((8, 12), dtype=np.float32))
    loss = net(pictures, captions)
    adam.zero_grad()
    loss.backward()
    adam.step()
    net.log_temperature.data.clamp_(0, 4.6052)
    losses.append(loss.item())
