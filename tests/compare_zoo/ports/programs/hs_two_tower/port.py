# SPDX-License-Identifier: Apache-2.0
"""Two towers with bags of sparse embeddings, an item cache per batch and two optimizers."""
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
torch.sparse.check_sparse_tensor_invariants.disable()

N_USER, N_ITEM, N_GENRE, D, MAXLEN, N_NEG, B, N_STEP = 20, 40, 6, 10, 7, 9, 12, 6


class Batch(NamedTuple):
    users: torch.Tensor
    flat: torch.Tensor            # all clicked items, end to end, counted from 0
    offsets: torch.Tensor
    candidates: torch.Tensor      # unique items of the batch
    positive: torch.Tensor        # index into candidates
    negative: torch.Tensor


class Clicks(IterableDataset):
    def __init__(self, seed):
        self.rng = torch.Generator().manual_seed(seed)
        self.genres = torch.randint(0, N_GENRE, (N_ITEM + 1,), generator=self.rng)[1:]
        p = torch.rand(N_ITEM + 1, generator=self.rng).square().add(0.02)
        p[0] = 0.0
        self.probs = p / p.sum()

    def __iter__(self):
        for _ in range(N_STEP):
            users = torch.randint(0, N_USER, (B,), generator=self.rng)
            count = torch.randint(0, MAXLEN + 1, (B,), generator=self.rng)
            clicked = torch.randint(1, N_ITEM + 1, (B, MAXLEN), generator=self.rng) - 1
            flat = torch.cat([row[:n] for row, n in zip(clicked, count.tolist())])
            drawn = [torch.multinomial(self.probs, n, replacement=r, generator=self.rng) - 1
                     for n, r in ((B, True), (N_NEG, False))]
            unique, where = torch.cat(drawn).unique(return_inverse=True)
            yield Batch(users, flat, count.cumsum(0) - count, unique, where[:B], where[B:])


class Retrieval(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_table = nn.Embedding(N_USER, D, sparse=True)
        self.item_table = nn.EmbeddingBag(N_ITEM, D, mode="mean", sparse=True)
        self.genre_table = nn.Parameter(torch.empty(N_GENRE, D))
        self.hidden_user = nn.Parameter(torch.empty(D, 24))
        self.hidden_items = nn.Parameter(torch.empty(D, 24))
        self.hidden_bias = nn.Parameter(torch.empty(24))
        self.top = nn.Linear(24, D)
        self.item_proj = nn.Parameter(torch.empty(D, D))
        self.log_tau = nn.Parameter(torch.empty(1))

    def queries(self, b):
        bag = self.item_table(b.flat, b.offsets)
        h = self.user_table(b.users) @ self.hidden_user + bag @ self.hidden_items + self.hidden_bias
        h = self.top(h.relu())
        return h / h.norm(dim=1, keepdim=True)

    def keys(self, ids, genres):
        rows = F.embedding(ids, self.item_table.weight, sparse=True)
        one_hot = F.one_hot(genres, N_GENRE).to(rows.dtype)
        k = torch.addmm(rows, one_hot, self.genre_table) @ self.item_proj
        return k / k.norm(dim=1, keepdim=True)

    def forward(self, b, genres, log_q):
        # every query against every candidate of the batch; what the sample lacks is masked out
        score = self.queries(b) @ self.keys(b.candidates, genres).T / self.log_tau.exp() - log_q
        allowed = torch.zeros_like(score, dtype=torch.bool)
        allowed[:, b.negative] = True
        rows = torch.arange(len(score))
        allowed[rows, b.positive] = True
        score = torch.where(allowed, score, -torch.inf)
        return score.logsumexp(1).sub(score[rows, b.positive]).mean()


def restore(net, path):
    w = torch.load(path)
    with torch.no_grad():
        net.user_table.weight.copy_(w["user_tower.user.weight"])
        net.item_table.weight.copy_(w["user_tower.items.weight"][1:])
        net.genre_table.copy_(w["item_tower.genre.weight"])
        both = w["user_tower.mlp.0.weight"].T
        net.hidden_user.copy_(both[:D]), net.hidden_items.copy_(both[D:])
        net.hidden_bias.copy_(w["user_tower.mlp.0.bias"])
        net.top.load_state_dict({k: w[f"user_tower.mlp.2.{k}"] for k in ("weight", "bias")})
        net.item_proj.copy_(w["item_tower.proj.weight"].T)
        net.log_tau.fill_(w["log_temperature"])


net = Retrieval()
restore(net, sys.argv[1])
stream = Clicks(77)
log_probs = stream.probs[1:].log()
tables = [net.user_table.weight, net.item_table.weight]
others = [p for p in net.parameters() if all(p is not t for t in tables)]
sparse_opt = torch.optim.Adagrad(tables, lr=0.05, initial_accumulator_value=0.1)
dense_opt = torch.optim.Adagrad(others, lr=0.05, initial_accumulator_value=0.1, foreach=True)
losses = []
for batch in DataLoader(stream, batch_size=None):
    loss = net(batch, stream.genres[batch.candidates], log_probs[batch.candidates])
    loss.backward()
    for opt in (dense_opt, sparse_opt):
        opt.step()
        opt.zero_grad()
    losses.append(float(loss.detach()))

print(losses)
