# SPDX-License-Identifier: Apache-2.0
"""A click model in the manner of DeepFM: a table a field, bags of a history, FM and a deep part."""

import sys

import torch
from torch import nn

FIELDS = [7, 11, 5]
ITEMS, DIM, DENSE, BATCH, HISTORY = 13, 6, 4, 12, 5


class DeepFM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, DIM) for n in FIELDS)
        self.linear = nn.ModuleList(nn.Embedding(n, 1) for n in FIELDS)
        self.history = nn.EmbeddingBag(ITEMS, DIM, mode="mean", padding_idx=0)  # <- bag
        self.dense = nn.Linear(DENSE, DIM)
        self.deep = nn.Sequential(
            nn.Linear(DIM * (len(FIELDS) + 2), 20),
            nn.BatchNorm1d(20),
            nn.ReLU(),
            nn.Linear(20, 10),
            nn.PReLU(),
            nn.Linear(10, 1),
        )
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, ids, items, numbers):
        vectors = [table(ids[:, i]) for i, table in enumerate(self.tables)]  # <- offsets
        vectors.append(self.history(items))  # <- bag
        vectors.append(self.dense(torch.log1p(numbers)))
        first = sum(table(ids[:, i]) for i, table in enumerate(self.linear))  # <- offsets
        second = 0.0
        for i in range(len(vectors)):
            for j in range(i + 1, len(vectors)):
                second = second + (vectors[i] * vectors[j]).sum(1, keepdim=True)  # <- square
        deep = self.deep(torch.cat(vectors, dim=1))  # <- statistics
        return (first + second + deep + self.bias).squeeze(1)  # <- square


def batches(count):
    generator = torch.Generator().manual_seed(112)
    for _ in range(count):
        columns = [torch.randint(n, (BATCH,), generator=generator) for n in FIELDS]
        items = torch.randint(1, ITEMS, (BATCH, HISTORY), generator=generator)
        lengths = torch.randint(1, HISTORY + 1, (BATCH, 1), generator=generator)
        items = items.masked_fill(torch.arange(HISTORY) >= lengths, 0)
        numbers = torch.rand(BATCH, DENSE, generator=generator) * 20
        clicks = (torch.rand(BATCH, generator=generator) < 0.3).float()
        yield torch.stack(columns, 1), items, numbers, clicks


torch.manual_seed(111)
model = DeepFM()
with torch.no_grad():
    for table in (*model.tables, model.history):
        table.weight.mul_(0.4)
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.Adagrad(
    model.parameters(), lr=0.05, initial_accumulator_value=0.1, eps=1e-7
)  # <- accumulator
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.5))
losses = []
*training, held_out = batches(5)
for ids, items, numbers, clicks in training:
    model.train()
    loss = criterion(model(ids, items, numbers), clicks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- accumulator
    losses.append(loss.item())

model.eval()
with torch.no_grad():
    ids, items, numbers, clicks = held_out
    losses.append(criterion(model(ids, items, numbers), clicks).item())
