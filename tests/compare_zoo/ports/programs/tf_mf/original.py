# SPDX-License-Identifier: Apache-2.0
"""Matrix factorisation with biases for ratings; hand-written loss, SGD with momentum, a schedule."""

import sys

import numpy as np
import torch
from torch import nn

USERS, ITEMS, RANK, BATCH, DECAY, MEAN = 30, 25, 6, 40, 0.02, 3.1


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, RANK)
        self.item = nn.Embedding(ITEMS, RANK)
        self.user_bias = nn.Embedding(USERS, 1)
        self.item_bias = nn.Embedding(ITEMS, 1)

    def forward(self, u, i):
        p, q = self.user(u), self.item(i)
        bu, bi = self.user_bias(u).squeeze(-1), self.item_bias(i).squeeze(-1)  # <- outer
        score = MEAN + (p * q).sum(-1) + bu + bi  # <- outer
        penalty = p.pow(2).sum() + q.pow(2).sum()  # <- halved
        return score, DECAY * penalty / len(u)  # <- halved


torch.manual_seed(5)
model = Factors()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.mul_(0.5)
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.SGD(model.parameters(), lr=0.6, momentum=0.9)  # <- velocity duplicates
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.6)  # <- early
rng = np.random.RandomState(21)
losses = []
for _ in range(4):
    users = torch.from_numpy(rng.randint(0, USERS, BATCH))
    items = torch.from_numpy(rng.randint(0, ITEMS, BATCH))
    ratings = torch.from_numpy(rng.randint(1, 6, BATCH).astype("float32"))
    score, penalty = model(users, items)
    loss = (score - ratings).pow(2).mean() + penalty  # <- outer
    optimizer.zero_grad()
    loss.backward()  # <- duplicates
    optimizer.step()  # <- velocity early duplicates
    schedule.step()  # <- early
    losses.append(loss.item())
print(losses)
