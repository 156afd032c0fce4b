# SPDX-License-Identifier: Apache-2.0
"""Hybrid recommender: user factors by alternating ridge solves, item tower by Adagrad."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
USERS, ITEMS, FEATS, RANK = 10, 14, 6, 3


class ItemTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(FEATS, 12)
        self.proj = nn.Linear(12, RANK, bias=False)
        self.residual = nn.Embedding(ITEMS, RANK)

    def forward(self, feats, idx):
        return (self.proj(torch.sigmoid(self.hidden(feats[idx])))  # <- free_scale
                + 0.3 * self.residual(idx))  # <- free_scale


class Hybrid(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, RANK)
        self.items = ItemTower()
        self.item_bias = nn.Embedding(ITEMS, 1)
        self.mu = nn.Parameter(torch.zeros(()))

    def forward(self, u, i, feats):
        return (self.users(u) * self.items(feats, i)).sum(1) + self.item_bias(i)[:, 0] + self.mu

    @torch.no_grad()
    def solve_users(self, u, i, r, feats, lam):
        V = self.items(feats, i)
        resid = r - self.item_bias(i)[:, 0] - self.mu  # <- level_kept
        for user in range(USERS):
            mine = u == user
            A = V[mine].T @ V[mine] + lam * torch.eye(RANK)  # <- ridge_count
            b = V[mine].T @ resid[mine]  # <- level_kept
            self.users.weight[user] = torch.linalg.solve(A, b)


gen = torch.Generator().manual_seed(77)
feats = torch.randn(ITEMS, FEATS, generator=gen)
true_u = torch.randn(USERS, RANK, generator=gen)
true_v = feats @ torch.randn(FEATS, RANK, generator=gen) / 2
u_all, i_all = torch.where(torch.rand(USERS, ITEMS, generator=gen) < 0.7)
r_all = (true_u[u_all] * true_v[i_all]).sum(1) + 0.2 * torch.randn(len(u_all), generator=gen) + 1.0

torch.manual_seed(0)
model = Hybrid()
torch.save(model.state_dict(), sys.argv[1])
tower = list(model.items.parameters()) + list(model.item_bias.parameters()) + [model.mu]
opt = torch.optim.Adagrad(tower, lr=0.05, initial_accumulator_value=0.1)  # <- accumulator_zero

losses = []
for rnd in range(4):
    model.solve_users(u_all, i_all, r_all, feats, lam=1.0)
    for _ in range(2):
        opt.zero_grad()
        pred = model(u_all, i_all, feats)
        fit = nn.functional.mse_loss(pred, r_all)  # <- cells_mean
        reg = (1e-2 * model.item_bias.weight.pow(2).sum()
               + 1e-2 * model.items.residual.weight.pow(2).sum())
        loss = fit + reg
        loss.backward()
        opt.step()  # <- accumulator_zero
    losses.append(loss.item())

print(losses)
