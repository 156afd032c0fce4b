# SPDX-License-Identifier: Apache-2.0
"""Two-tower recommender: padded history, sampled softmax with logQ correction, dense Adagrad."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)

USERS, ITEMS, GENRES, DIM, LENGTH, NEGATIVES, BATCH, STEPS = 20, 40, 6, 10, 7, 9, 12, 6


class UserTower(nn.Module):
    def __init__(self, items):
        super().__init__()
        self.items = items
        self.user = nn.Embedding(USERS, DIM)
        self.mlp = nn.Sequential(nn.Linear(2 * DIM, 24), nn.ReLU(), nn.Linear(24, DIM))

    def forward(self, user, history):                     # history is padded with 0
        mask = (history > 0).unsqueeze(-1).float()
        mean = (self.items(history) * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        return F.normalize(self.mlp(torch.cat([self.user(user), mean], -1)), dim=-1)


class ItemTower(nn.Module):
    def __init__(self, items):
        super().__init__()
        self.items = items
        self.genre = nn.Embedding(GENRES, DIM)
        self.proj = nn.Linear(DIM, DIM, bias=False)

    def forward(self, item, genre):
        return F.normalize(self.proj(self.items(item) + self.genre(genre)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        items = nn.Embedding(ITEMS + 1, DIM, padding_idx=0)
        self.user_tower = UserTower(items)
        self.item_tower = ItemTower(items)
        self.log_temperature = nn.Parameter(torch.tensor(-1.0))


model = TwoTower()
torch.save(model.state_dict(), sys.argv[1])

g = torch.Generator().manual_seed(77)
genre_of = torch.randint(0, GENRES, (ITEMS + 1,), generator=g)
popularity = torch.rand(ITEMS + 1, generator=g) ** 2 + 0.02
popularity[0] = 0.0
popularity = popularity / popularity.sum()

optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05, initial_accumulator_value=0.1)

losses = []
for step in range(STEPS):
    user = torch.randint(0, USERS, (BATCH,), generator=g)
    lengths = torch.randint(0, LENGTH + 1, (BATCH,), generator=g)
    history = torch.randint(1, ITEMS + 1, (BATCH, LENGTH), generator=g)
    history = history * (torch.arange(LENGTH) < lengths.unsqueeze(1))
    positive = torch.multinomial(popularity, BATCH, replacement=True, generator=g)
    negative = torch.multinomial(popularity, NEGATIVES, replacement=False, generator=g)

    u = model.user_tower(user, history)
    pos = model.item_tower(positive, genre_of[positive])
    neg = model.item_tower(negative, genre_of[negative])
    scale = torch.exp(-model.log_temperature)
    pos_logit = (u * pos).sum(-1, keepdim=True) * scale - popularity[positive].log().unsqueeze(1)
    neg_logit = u @ neg.T * scale - popularity[negative].log()
    neg_logit = neg_logit.masked_fill(negative.unsqueeze(0) == positive.unsqueeze(1), -1e9)
    logits = torch.cat([pos_logit, neg_logit], 1)
    loss = F.cross_entropy(logits, torch.zeros(BATCH, dtype=torch.long))

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

print(losses)
