# SPDX-License-Identifier: Apache-2.0
"""Message passing with gated updates for regression on small random molecules."""
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)

GRAPHS, ATOMS, BONDS, DIM, ROUNDS = 6, 7, 3, 16, 3


class MPNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.atom = nn.Embedding(ATOMS, DIM)
        self.bond = nn.Embedding(BONDS, DIM)
        self.message = nn.Sequential(nn.Linear(3 * DIM, DIM), nn.ReLU(), nn.Linear(DIM, DIM))
        self.gru = nn.GRUCell(DIM, DIM)
        self.readout = nn.Sequential(nn.Linear(2 * DIM, DIM), nn.ReLU(), nn.Linear(DIM, 1))

    def forward(self, atoms, src, dst, bonds, batch):
        h0 = h = self.atom(atoms)
        e = self.bond(bonds)
        for _ in range(ROUNDS):
            m = self.message(torch.cat([h[src], h[dst], e], dim=-1))
            agg = torch.zeros_like(h).index_add_(0, dst, m)
            h = self.gru(agg, h)
        both = torch.cat([h, h0], dim=-1)
        total = both.new_zeros(GRAPHS, 2 * DIM).index_add_(0, batch, both)
        count = torch.bincount(batch, minlength=GRAPHS).unsqueeze(1)
        return self.readout(total / count).squeeze(-1)


def random_batch(rng):
    atoms, src, dst, bonds, batch, target, base = [], [], [], [], [], [], 0
    for g in range(GRAPHS):
        n = rng.randint(4, 9)
        kinds = rng.randint(0, ATOMS, size=n)
        for i in range(1, n):  # a random tree, both directions
            j, kind = rng.randint(0, i), rng.randint(0, BONDS)
            src += [base + i, base + j]
            dst += [base + j, base + i]
            bonds += [kind, kind]
        atoms.append(kinds)
        batch += [g] * n
        target.append(kinds.mean() / 3 - 1 + 0.1 * rng.randn())
        base += n
    to = torch.as_tensor
    return (to(np.concatenate(atoms)), to(src), to(dst), to(bonds), to(batch)), to(target, dtype=torch.float32)


model = MPNN()
np.savez(sys.argv[1], **{k: v.numpy() for k, v in model.state_dict().items()})
optimizer = torch.optim.Adam(model.parameters(), lr=6e-3, weight_decay=1e-3)
rng = np.random.RandomState(12)
losses = []
for epoch in range(4):
    graph, target = random_batch(rng)
    optimizer.zero_grad()
    pred = model(*graph)
    loss = F.mse_loss(pred, target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
