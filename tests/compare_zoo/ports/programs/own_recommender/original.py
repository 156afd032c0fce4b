# SPDX-License-Identifier: Apache-2.0
"""A recommender: embedding bags of histories and tags, in-batch softmax with the popularity
subtracted, and a rating head; sparse gradients for the tables (Adagrad), Adam for the rest.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

ITEMS, TAGS, DIM, BATCH = 25, 9, 8, 6


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.EmbeddingBag(ITEMS, DIM, mode="sum", sparse=True)
        self.tags = nn.EmbeddingBag(TAGS, DIM, mode="mean", sparse=True)
        self.user_tower = nn.Sequential(
            nn.Linear(2 * DIM, 16), nn.LayerNorm(16), nn.SiLU(), nn.Linear(16, DIM)
        )
        self.item_tower = nn.Sequential(nn.Linear(DIM, 12), nn.SiLU(), nn.Linear(12, DIM))
        self.rating = nn.Bilinear(DIM, DIM, 1)  # <- sides

    def forward(self, history, ages, h_offsets, tags, t_offsets, candidates):
        recent = self.items(history, h_offsets, per_sample_weights=0.5**ages)
        profile = self.tags(tags, t_offsets)  # <- bag_mean
        user = self.user_tower(torch.cat((recent, profile), dim=1))
        single = F.embedding(candidates, self.items.weight, sparse=True)  # <- shifted
        item = self.item_tower(single)
        return user, item, self.rating(user, item).squeeze(1)  # <- sides


def offsets_of(lengths):
    return torch.cat((torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]))


def bags(generator):
    h_lengths = torch.randint(1, 6, (BATCH,), generator=generator)
    history = torch.randint(ITEMS, (int(h_lengths.sum()),), generator=generator)
    t_lengths = torch.randint(1, 5, (BATCH,), generator=generator)
    tags = torch.randint(TAGS, (int(t_lengths.sum()),), generator=generator)
    candidates = torch.randint(ITEMS, (BATCH,), generator=generator)  # <- shifted
    stars = torch.randint(1, 6, (BATCH,), generator=generator).float()
    ages = torch.cat([torch.arange(int(n) - 1, -1, -1) for n in h_lengths]).float()
    return (history, ages, offsets_of(h_lengths), tags, offsets_of(t_lengths), candidates), stars


torch.manual_seed(61)
model = Recommender()
torch.save(model.state_dict(), sys.argv[1])
frequency = 1.0 / torch.arange(2.0, ITEMS + 2)
frequency = frequency / frequency.sum()

tables = [model.items.weight, model.tags.weight]
dense = [p for p in model.parameters() if all(p is not t for t in tables)]
sparse_optimizer = torch.optim.Adagrad(
    tables, lr=0.1, initial_accumulator_value=0.1
)  # <- accumulator
dense_optimizer = torch.optim.Adam(dense, lr=0.01, eps=1e-4)
generator = torch.Generator().manual_seed(62)
losses = []
for _ in range(4):
    batch, stars = bags(generator)
    user, item, rating = model(*batch)
    logits = user @ item.t() - frequency[batch[-1]].log()  # <- popularity
    retrieval = F.cross_entropy(logits, torch.arange(BATCH))
    loss = retrieval + 0.1 * F.mse_loss(rating, stars)
    sparse_optimizer.zero_grad()
    dense_optimizer.zero_grad()
    loss.backward()
    sparse_optimizer.step()  # <- accumulator
    dense_optimizer.step()
    losses.append(loss.item())
