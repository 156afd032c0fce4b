# SPDX-License-Identifier: Apache-2.0
"""A click model on a table: categorical embeddings, numeric columns, batch norm, Adam with L2."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CARDS, DIM, NUMERIC, HIDDEN, BATCH = (12, 7, 20), 4, 4, 16, 24


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.norm = nn.BatchNorm1d(HIDDEN)  # <- bn_eps
        self.act = nn.LeakyReLU()  # <- leak

    def forward(self, x):
        hidden = self.fc(x)  # <- square
        hidden = self.norm(hidden)  # <- bn_eps
        return x + self.act(hidden)  # <- leak


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeds = nn.ModuleList(
            [nn.Embedding(c, DIM, padding_idx=0) for c in CARDS]
        )  # <- padrow
        self.proj = nn.Linear(DIM * len(CARDS) + NUMERIC, HIDDEN)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, cats, nums):
        parts = [embed(cats[:, i]) for i, embed in enumerate(self.embeds)]  # <- padrow
        x = torch.cat([*parts, nums], dim=1)
        x = self.proj(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x).squeeze(1)


torch.manual_seed(3)
model = Tabular()
with torch.no_grad():
    for block in model.blocks:
        block.fc.weight.mul_(0.2)
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=0.05)  # <- coupled
rng = np.random.RandomState(11)
losses = []
model.train()
for _ in range(4):
    cats = np.stack([rng.randint(0, c, BATCH) for c in CARDS], axis=1)
    cats[rng.rand(BATCH, len(CARDS)) < 0.25] = 0
    nums = rng.randn(BATCH, NUMERIC).astype("float32")
    labels = ((nums[:, 0] + 0.3 * (cats[:, 0] % 3)) > 0.3).astype("float32")
    logits = model(torch.from_numpy(cats), torch.from_numpy(nums))
    loss = F.binary_cross_entropy_with_logits(logits, torch.from_numpy(labels))
    optimizer.zero_grad()
    loss.backward()  # <- padrow
    optimizer.step()  # <- coupled padrow
    losses.append(loss.item())
print(losses)
