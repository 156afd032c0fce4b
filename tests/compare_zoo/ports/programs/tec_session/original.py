# SPDX-License-Identifier: Apache-2.0
"""Session-based recommender: GRU over clicked items, BPR-max with in-batch negatives."""

import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
N_ITEMS, DIM, MAX_LEN, BATCH, STEPS = 60, 12, 7, 10, 5


class ItemTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(N_ITEMS, DIM, padding_idx=0)
        self.bias = nn.Parameter(torch.randn(N_ITEMS) * 0.1)
        nn.init.normal_(self.emb.weight[1:], std=0.5)


class SessionRec(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = ItemTable()
        self.start = nn.Parameter(torch.randn(DIM) * 0.3)
        self.gru = nn.GRUCell(DIM, DIM)
        self.proj = nn.Linear(DIM, DIM)

    def encode(self, clicks, lengths):
        x = self.items.emb(clicks)
        h = self.start.expand(len(clicks), DIM)  # <- first_state
        for t in range(clicks.size(1)):
            nxt = self.gru(x[:, t], h)  # <- reset_gate first_state
            alive = (t < lengths).unsqueeze(1).float()
            h = alive * nxt + (1 - alive) * h
        return torch.tanh(self.proj(h))

    def scores(self, user, cand):
        return user @ self.items.emb(cand).t() + self.items.bias[cand]


def bpr_max(scores, popularity_reg=0.5):
    pos = scores.diagonal().unsqueeze(1)
    same = torch.eye(scores.size(0), dtype=torch.bool)
    weight = scores.masked_fill(same, -1e9).softmax(1)  # <- positive_masked
    prob = (weight * torch.sigmoid(pos - scores)).sum(1)  # <- positive_masked
    reg = (weight * scores**2).sum(1)
    return (-torch.log(prob + 1e-24) + popularity_reg * reg).mean()


class Adagrad:
    """The team's own Adagrad with momentum, from the days of Theano."""

    def __init__(self, params, lr=0.15, momentum=0.3, eps=1e-6):
        self.params = list(params)
        self.lr, self.momentum, self.eps = lr, momentum, eps
        self.acc = [torch.full_like(p, 0.05) for p in self.params]
        self.vel = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        for p, a, v in zip(self.params, self.acc, self.vel):
            a.add_(p.grad**2)  # <- accumulator_sum
            scaled = p.grad / torch.sqrt(a + self.eps)  # <- accumulator_sum
            v.mul_(self.momentum).sub_(self.lr * scaled)
            p.add_(v)
            p.grad = None


def make_batch(g):
    lengths = torch.randint(2, MAX_LEN + 1, (BATCH,), generator=g)
    clicks = torch.randint(1, N_ITEMS, (BATCH, MAX_LEN), generator=g)
    clicks[torch.arange(MAX_LEN)[None] >= lengths[:, None]] = 0
    target = torch.randperm(N_ITEMS - 1, generator=g)[:BATCH] + 1
    return clicks, lengths, target


model = SessionRec()
torch.save(model.state_dict(), sys.argv[1])
optimizer = Adagrad(model.parameters())
gen = torch.Generator().manual_seed(5)
losses = []
for step in range(STEPS):
    clicks, lengths, target = make_batch(gen)
    user = model.encode(clicks, lengths)
    logits = model.scores(user, target) / math.sqrt(DIM) * 2.0  # <- score_bias
    loss = bpr_max(logits)
    loss.backward()
    optimizer.step()  # <- accumulator_sum
    losses.append(float(loss))
print(losses)
