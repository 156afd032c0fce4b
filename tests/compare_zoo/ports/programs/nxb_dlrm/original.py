# SPDX-License-Identifier: Apache-2.0
"""Deep learning recommendation model: embedding bags, dot interaction, weighted BCE, Adagrad."""
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

TABLE_SIZES, DIM, DENSE, BATCH, STEPS = [13, 7, 19], 6, 5, 8, 4


class DLRM_Net(nn.Module):
    def create_mlp(self, ln):
        layers = nn.ModuleList()
        for n, m in zip(ln[:-1], ln[1:]):
            LL = nn.Linear(n, m, bias=True)
            W = np.random.normal(0.0, np.sqrt(2 / (m + n)), size=(m, n)).astype(np.float32)
            LL.weight.data = torch.tensor(W)
            LL.bias.data.zero_().add_(0.05)
            layers.append(LL)
            if m != ln[-1] or m != 1:
                layers.append(nn.ReLU())
        return nn.Sequential(*layers)

    def create_emb(self, sizes, dim):
        emb_l = nn.ModuleList()
        for n in sizes:
            EE = nn.EmbeddingBag(n, dim, mode="sum")
            bound = np.sqrt(4 / n)
            W = np.random.uniform(-bound, bound, size=(n, dim)).astype(np.float32)
            EE.weight.data = torch.tensor(W)
            emb_l.append(EE)
        return emb_l

    def __init__(self):
        super().__init__()
        num_fea = len(TABLE_SIZES) + 1
        num_int = num_fea * (num_fea - 1) // 2 + DIM
        self.emb_l = self.create_emb(TABLE_SIZES, DIM)
        self.bot_l = self.create_mlp([DENSE, 10, DIM])
        self.top_l = self.create_mlp([num_int, 12, 1])

    def apply_emb(self, lS_o, lS_i):
        ly = []
        for k, E in enumerate(self.emb_l):
            V = E(lS_i[k], lS_o[k])  # <- segment_edge
            ly.append(V)
        return ly

    def interact_features(self, x, ly):
        batch_size, d = x.shape
        T = torch.cat([x] + ly, dim=1).view((batch_size, -1, d))
        Z = torch.bmm(T, torch.transpose(T, 1, 2))
        _, ni, nj = Z.shape
        li = torch.tensor([i for i in range(ni) for j in range(i)])  # <- pair_order
        lj = torch.tensor([j for i in range(nj) for j in range(i)])  # <- pair_order
        Zflat = Z[:, li, lj]  # <- pair_order
        return torch.cat([x] + [Zflat], dim=1)

    def forward(self, dense_x, lS_o, lS_i):
        x = self.bot_l(dense_x)  # <- dense_log
        z = self.interact_features(x, self.apply_emb(lS_o, lS_i))
        return self.top_l(z)  # <- pair_order


def make_batch(g):
    X = torch.randint(0, 40, (BATCH, DENSE), generator=g)
    X = torch.log(X.float() + 1)  # <- dense_log
    lS_o, lS_i = [], []
    for n in TABLE_SIZES:
        counts = torch.randint(0, 4, (BATCH,), generator=g)
        lS_o.append(torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)[:-1]]))
        lS_i.append(torch.randint(0, n, (int(counts.sum()),), generator=g))
    click = (torch.rand(BATCH, 1, generator=g) < 0.4).float()
    return X, lS_o, lS_i, click


def weighted_bce(Z, T, weights=(0.5, 2.0)):
    loss_ws = torch.tensor(weights)[T.view(-1).long()].view_as(T)  # <- row_weight
    loss_fn = F.binary_cross_entropy_with_logits(Z, T, reduction="none")
    return (loss_ws * loss_fn).sum() / loss_ws.sum()  # <- row_weight


np.random.seed(123)
torch.manual_seed(0)
dlrm = DLRM_Net()
torch.save(dlrm.state_dict(), sys.argv[1])
optimizer = torch.optim.Adagrad(  # <- accumulator_start
    dlrm.parameters(), lr=0.05, initial_accumulator_value=0.1, eps=1e-8)  # <- accumulator_start

g = torch.Generator().manual_seed(2020)
losses = []
for j in range(STEPS):
    X, lS_o, lS_i, T = make_batch(g)
    Z = dlrm(X, lS_o, lS_i)
    E = weighted_bce(Z, T)
    optimizer.zero_grad()
    E.backward()
    optimizer.step()  # <- accumulator_start
    losses.append(E.detach().item())
print(losses)
