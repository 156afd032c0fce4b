# SPDX-License-Identifier: Apache-2.0
"""Two towers and a symmetric contrastive loss (CLIP, Radford et al., 2021)."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Tower(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inside, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 16, bias=False)
        )

    def forward(self, x):
        return self.net(x)


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = Tower(20), Tower(12)
        self.logit_scale = nn.Parameter(torch.tensor(np.log(1 / 0.07), dtype=torch.float32))

    def forward(self, images, texts):
        a = self.image(images)
        b = self.text(texts)
        a = a / a.norm(dim=1, keepdim=True)  # <- norm axis
        b = b / b.norm(dim=1, keepdim=True)  # <- norm
        logits = self.logit_scale.exp() * a @ b.t()  # <- temperature
        return logits, logits.t()  # <- oneway


torch.manual_seed(2)
model = CLIP()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
rng = np.random.default_rng(4)
losses = []
for _ in range(3):
    images = torch.from_numpy(rng.standard_normal((8, 20), dtype=np.float32))
    texts = torch.from_numpy(rng.standard_normal((8, 12), dtype=np.float32))
    rows, columns = model(images, texts)
    right = torch.arange(8)
    loss = (F.cross_entropy(rows, right) + F.cross_entropy(columns, right)) / 2  # <- oneway halved
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.logit_scale.clamp_(0, np.log(100))
    losses.append(loss.item())
