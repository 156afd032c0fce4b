# SPDX-License-Identifier: Apache-2.0
"""A deep interest network for click prediction: padded histories, an attention without softmax,
Dice activations, decay on the embeddings only and an exponential schedule.
"""

import sys

import torch
from torch import nn

USERS, ITEMS, CATES, EMB, BATCH, LENGTH = 14, 40, 7, 8, 12, 6


class Dice(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bn = nn.BatchNorm1d(size, eps=1e-3, momentum=0.1, affine=False)  # <- dice_eps running
        self.alpha = nn.Parameter(torch.full((size,), 0.2))

    def forward(self, x):
        p = torch.sigmoid(self.bn(x))  # <- dice_eps running
        return p * x + (1 - p) * self.alpha * x


class AttentionUnit(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(4 * size, 16), nn.PReLU(), nn.Linear(16, 1))

    def forward(self, query, facts, mask):
        queries = query.unsqueeze(1).expand_as(facts)  # <- segment
        joined = torch.cat([queries, facts, queries - facts, queries * facts], dim=-1)  # <- segment
        scores = self.mlp(joined).squeeze(-1)
        scores = scores * mask
        return torch.bmm(scores.unsqueeze(1), facts).squeeze(1)  # <- segment


class DIN(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_emb = nn.Embedding(USERS, EMB)
        self.item_emb = nn.Embedding(ITEMS, EMB)
        self.cate_emb = nn.Embedding(CATES, EMB)
        self.attention = AttentionUnit(2 * EMB)
        self.fc1 = nn.Linear(5 * EMB, 20)
        self.dice1 = Dice(20)
        self.fc2 = nn.Linear(20, 10)
        self.dice2 = Dice(10)
        self.out = nn.Linear(10, 1)

    def goods(self, item, cate_of):
        return torch.cat([self.item_emb(item), self.cate_emb(cate_of[item])], -1)  # <- offsets

    def forward(self, user, item, history, lengths, cate_of):
        mask = (torch.arange(history.size(1)) < lengths.unsqueeze(1)).float()
        query = self.goods(item, cate_of)
        facts = self.goods(history, cate_of)
        interest = self.attention(query, facts, mask)
        x = torch.cat([self.user_emb(user), query, interest], dim=-1)
        x = self.dice1(self.fc1(x))
        x = self.dice2(self.fc2(x))
        return self.out(x).squeeze(-1)


def clicks(generator):
    user = torch.randint(0, USERS, (BATCH,), generator=generator)
    item = torch.randint(0, ITEMS, (BATCH,), generator=generator)
    history = torch.randint(0, ITEMS, (BATCH, LENGTH), generator=generator)
    lengths = torch.randint(1, LENGTH + 1, (BATCH,), generator=generator)
    label = torch.randint(0, 2, (BATCH,), generator=generator).float()
    return user, item, history, lengths, label


torch.manual_seed(21)
model = DIN()
torch.save(model.state_dict(), sys.argv[1])
generator = torch.Generator().manual_seed(22)
cate_of = torch.randint(0, CATES, (ITEMS,), generator=generator)
tables = [p for n, p in model.named_parameters() if "_emb" in n]
dense = [p for n, p in model.named_parameters() if "_emb" not in n]
optimizer = torch.optim.Adam(
    [{"params": tables, "weight_decay": 0.01}, {"params": dense}], lr=0.02, eps=1e-3
)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)  # <- schedule
criterion = nn.BCEWithLogitsLoss()
losses = []
for _ in range(4):
    user, item, history, lengths, label = clicks(generator)
    loss = criterion(model(user, item, history, lengths, cate_of), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- schedule
    scheduler.step()  # <- schedule
    losses.append(loss.item())

model.eval()
with torch.no_grad():
    user, item, history, lengths, label = clicks(generator)
    losses.append(criterion(model(user, item, history, lengths, cate_of), label).item())
