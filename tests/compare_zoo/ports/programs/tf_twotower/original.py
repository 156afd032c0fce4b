# SPDX-License-Identifier: Apache-2.0
"""A two-tower retrieval model with in-batch negatives both ways; AdamW, decay on matrices only."""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

USERS, ITEMS, DIM, OUT, BATCH, LENGTH = 30, 40, 8, 6, 12, 5


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, DIM)
        self.items = nn.Embedding(ITEMS, DIM)
        self.user_fc = nn.Linear(2 * DIM, OUT)
        self.item_fc = nn.Linear(DIM, OUT)
        self.log_scale = nn.Parameter(torch.tensor(math.log(5.0)))  # <- scale

    def forward(self, user, history, item):
        taken = history.ne(0).float().unsqueeze(-1)  # <- bag
        past = self.items(history)
        past = (past * taken).sum(1) / taken.sum(1).clamp(min=1.0)  # <- bag
        u = torch.cat([self.users(user), past], dim=1)
        u = F.normalize(self.user_fc(u), dim=-1)  # <- axis
        v = F.normalize(self.item_fc(self.items(item)), dim=-1)
        return u @ v.T * self.log_scale.exp()  # <- scale


torch.manual_seed(43)
model = TwoTower()
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

decayed = [model.user_fc.weight, model.item_fc.weight]  # <- excluded
others = [p for p in model.parameters() if all(p is not d for d in decayed)]  # <- excluded
optimizer = torch.optim.AdamW(
    [
        {"params": decayed, "weight_decay": 0.2},
        {"params": others, "weight_decay": 0.0},
    ],  # <- excluded
    lr=0.03,
    betas=(0.5, 0.98),
)  # <- excluded betas
rng = np.random.RandomState(91)
losses = []
for _ in range(4):
    user = torch.from_numpy(rng.randint(0, USERS, BATCH))
    history = rng.randint(1, ITEMS, (BATCH, LENGTH))
    history[rng.rand(BATCH, LENGTH) < 0.4] = 0
    history = torch.from_numpy(history)
    item = (user + history.max(1).values) % (ITEMS - 1) + 1
    logits = model(user, history, item)
    target = torch.arange(BATCH)
    loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- excluded betas
    losses.append(loss.item())
print(losses)
