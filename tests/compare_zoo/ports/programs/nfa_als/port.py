# SPDX-License-Identifier: Apache-2.0
"""Alternating fit of a ratings table: dense masked algebra, all users solved in one batch."""
import sys
from typing import NamedTuple
import torch
from torch import Tensor

torch.set_num_threads(1)


class ItemSide(NamedTuple):
    w: Tensor        # features -> hidden
    c: Tensor
    proj: Tensor     # hidden -> rank
    free: Tensor     # items x rank
    offset: Tensor   # items
    level: Tensor    # ()


def item_factors(p, feats):
    return torch.sigmoid(torch.addmm(p.c, feats, p.w)) @ p.proj + 0.3 * p.free  # <- free_scale


def objective(p, U, table, mask, feats):
    err = mask * (U @ item_factors(p, feats).T + p.offset + p.level - table)
    return ((err ** 2).sum() / mask.sum()  # <- cells_mean
            + 0.01 * (p.offset.square().sum() + p.free.square().sum()))


def ridge_users(p, table, mask, feats, lam=1.0):
    V = item_factors(p, feats)
    gram = torch.einsum("ui,ik,il->ukl", mask, V, V) + lam * torch.eye(V.shape[1])  # <- ridge_count
    rhs = (mask * (table - p.offset - p.level)) @ V  # <- level_kept
    return torch.cholesky_solve(rhs.unsqueeze(-1), torch.linalg.cholesky(gram)).squeeze(-1)


def adagrad(p, g, acc):
    acc = ItemSide(*(a + d.square() for a, d in zip(acc, g)))  # <- accumulator_zero
    return ItemSide(*(x - 0.05 * d / (a.sqrt() + 1e-10)  # <- accumulator_zero
                      for x, d, a in zip(p, g, acc))), acc


def start(path):
    sd = torch.load(path, weights_only=True)
    return ItemSide(w=sd["items.hidden.weight"].T, c=sd["items.hidden.bias"],
                    proj=sd["items.proj.weight"].T,
                    free=sd["items.residual.weight"], offset=sd["item_bias.weight"].flatten(),
                    level=sd["mu"])


def ratings(seed, users=10, items=14, d=6, k=3):
    gen = torch.Generator().manual_seed(seed)
    feats = torch.randn(items, d, generator=gen)
    tu = torch.randn(users, k, generator=gen)
    tv = feats @ torch.randn(d, k, generator=gen) / 2
    seen = torch.rand(users, items, generator=gen) < 0.7
    noise = torch.zeros(users, items)
    noise[seen] = 0.2 * torch.randn(int(seen.sum()), generator=gen)
    mask = seen.float()
    return feats, mask * (tu @ tv.T + noise + 1.0), mask


feats, table, mask = ratings(77)
p = start(sys.argv[1])
acc = ItemSide(*(torch.full_like(t, 0.1) for t in p))  # <- accumulator_zero
losses = []
for _ in range(4):
    U = ridge_users(p, table, mask, feats)
    for _ in range(2):
        p = ItemSide(*(t.detach().requires_grad_() for t in p))
        value = objective(p, U, table, mask, feats)
        g = torch.autograd.grad(value, p)
        with torch.no_grad():
            p, acc = adagrad(p, g, acc)
    losses.append(value.item())

print(losses)
