# SPDX-License-Identifier: Apache-2.0
"""Two towers for retrieval (Yi et al., 2019): a user's history in a bag, a cross layer, an item with
its category and brand, a softmax over the batch corrected by frequencies estimated from the stream.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

USERS, ITEMS, KINDS, DIM, OUT, HISTORY, BATCH = 17, 23, 7, 6, 5, 5, 8
TEMPERATURE, ALPHA = 0.2, 0.3


class CrossLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x0, x):
        return x0 * self.linear(x) + x  # <- crossed


class UserTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, DIM)
        self.history = nn.EmbeddingBag(ITEMS + 1, DIM, mode="mean", padding_idx=0)
        self.cross = nn.ModuleList(CrossLayer(2 * DIM) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(2 * DIM, 10), nn.ReLU(), nn.Linear(10, OUT))

    def forward(self, user, history):
        x0 = torch.cat([self.user(user), self.history(history)], dim=1)  # <- bag
        x = x0
        for layer in self.cross:
            x = layer(x0, x)
        return F.normalize(self.mlp(x), dim=1)  # <- unit


class ItemTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(ITEMS + 1, DIM)
        self.category, self.brand = nn.Embedding(KINDS, DIM), nn.Embedding(KINDS, DIM)
        self.mlp = nn.Sequential(nn.Linear(3 * DIM, 10), nn.ReLU(), nn.Linear(10, OUT))

    def forward(self, item, category, brand):
        parts = [self.item(item), self.category(category), self.brand(brand)]  # <- table
        return F.normalize(self.mlp(torch.cat(parts, dim=1)), dim=1)  # <- active


class FrequencyEstimator:
    """How many steps lie between two sights of an item, as a moving average."""

    def __init__(self):
        self.last_seen = torch.zeros(ITEMS + 1)
        self.gap = torch.full((ITEMS + 1,), 4.0)

    def update(self, items, step):
        fresh = step - self.last_seen[items]  # <- seen
        self.gap[items] = (1 - ALPHA) * self.gap[items] + ALPHA * fresh
        self.last_seen[items] = float(step)  # <- seen

    def probability(self, items):
        return 1.0 / self.gap[items]


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_tower, self.item_tower = UserTower(), ItemTower()

    def forward(self, users, items, probability, ids):
        logits = self.user_tower(*users) @ self.item_tower(*items).T / TEMPERATURE  # <- warm
        logits = logits - torch.log(probability)[None, :]  # <- corrected
        twice = (ids[None, :] == ids[:, None]) & ~torch.eye(BATCH, dtype=torch.bool)  # <- hits
        logits = logits.masked_fill(twice, -1e9)  # <- hits
        return F.cross_entropy(logits, torch.arange(BATCH))  # <- hits


torch.manual_seed(193)
model = TwoTower()
torch.save(model.state_dict(), sys.argv[1])
tables = [p for name, p in model.named_parameters() if p.shape[-1] == DIM]
dense = [p for name, p in model.named_parameters() if p.shape[-1] != DIM]
adagrad = torch.optim.Adagrad(
    tables, lr=0.1, initial_accumulator_value=0.1, eps=1e-7
)  # <- accumulator
adam = torch.optim.Adam(dense, lr=5e-3, eps=1e-7)
estimator = FrequencyEstimator()
rng = np.random.default_rng(197)
categories = torch.from_numpy(rng.integers(0, KINDS, ITEMS + 1))
brands = torch.from_numpy(rng.integers(0, KINDS, ITEMS + 1))
losses = []
for step in range(1, 5):
    user = torch.from_numpy(rng.integers(0, USERS, BATCH))
    history = rng.integers(1, ITEMS + 1, (BATCH, HISTORY))
    history[np.arange(HISTORY) >= rng.integers(1, HISTORY + 1, (BATCH, 1))] = 0
    item = torch.from_numpy(rng.integers(1, ITEMS + 1, BATCH))
    estimator.update(item, step)
    given = (user, torch.from_numpy(history)), (item, categories[item], brands[item])
    loss = model(*given, estimator.probability(item), item)
    for optimizer in (adagrad, adam):
        optimizer.zero_grad()
    loss.backward()
    adagrad.step()  # <- accumulator
    adam.step()
    losses.append(loss.item())
