# SPDX-License-Identifier: Apache-2.0
"""Molecule property model: edge-conditioned message passing, GRU update, gated pooling."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

ATOMS, BONDS, DIM, ROUNDS = 6, 3, 8, 2


class BondMessage(nn.Module):
    def __init__(self):
        super().__init__()
        self.edge = nn.Embedding(BONDS, DIM)
        self.net = nn.Sequential(
            nn.Linear(3 * DIM + 1, DIM),
            nn.Softplus(beta=2.0),  # <- softplus
            nn.Linear(DIM, DIM),
        )
        self.att = nn.Linear(3 * DIM + 1, 1)

    def forward(self, h, src, dst, bond, length):
        z = torch.cat([h[src], h[dst], self.edge(bond), length[:, None]], dim=1)  # <- direction
        score = F.leaky_relu(self.att(z).squeeze(1), 0.2)
        score = score.exp()
        norm = torch.zeros(len(h)).index_add(0, dst, score)  # <- neighbour_norm
        weight = score / norm[dst]  # <- neighbour_norm
        msg = self.net(z) * weight[:, None]  # <- softplus
        return torch.zeros_like(h).index_add(0, dst, msg)  # <- direction


class MolNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.atom = nn.Embedding(ATOMS, DIM)
        self.message = BondMessage()
        self.update = nn.GRUCell(DIM, DIM)
        self.bn = nn.BatchNorm1d(DIM, momentum=0.2)
        self.gate = nn.Linear(2 * DIM, 1)
        self.readout = nn.Linear(DIM, 2)

    def forward(self, mol):
        h0 = h = self.atom(mol["atom"])
        for _ in range(ROUNDS):
            m = self.message(h, mol["src"], mol["dst"], mol["bond"], mol["length"])
            h = self.update(m, h)
        h = self.bn(h)  # <- batch_rows
        gate = torch.sigmoid(self.gate(torch.cat([h, h0], dim=1)))
        n_mol = int(mol["owner"].max()) + 1
        pooled = torch.zeros(n_mol, DIM).index_add(0, mol["owner"], gate * h)
        return self.readout(pooled)


def make_molecules(gen, sizes=(4, 6, 3, 5)):
    parts = {k: [] for k in ("atom", "src", "dst", "bond", "length", "owner")}
    base = 0
    for m, n in enumerate(sizes):
        parts["atom"].append(torch.randint(0, ATOMS, (n,), generator=gen))
        for i in range(1, n):
            j = int(torch.randint(0, i, (1,), generator=gen))
            bond = int(torch.randint(0, BONDS, (1,), generator=gen))
            length = float(torch.rand(1, generator=gen)) + 1
            parts["src"] += [base + i, base + j]
            parts["dst"] += [base + j, base + i]
            parts["bond"] += [bond, bond]
            parts["length"] += [length, length * 1.1]
        parts["owner"] += [m] * n
        base += n
    mol = {k: torch.tensor(v) for k, v in parts.items() if k != "atom"}
    mol["atom"] = torch.cat(parts["atom"])
    return mol, torch.randn(len(sizes), 2, generator=gen)


torch.manual_seed(0)
model = MolNet()
torch.save(model.state_dict(), sys.argv[1])
head = list(model.gate.parameters()) + list(model.readout.parameters())
body = [p for p in model.parameters() if all(p is not q for q in head)]
optimizer = torch.optim.Adam(
    [
        {"params": body, "lr": 0.01},  # <- adam_bias
        {"params": head, "lr": 0.03},
    ],
    eps=1e-3,
)  # <- adam_bias
log_var = torch.zeros(2, requires_grad=True)
optimizer.add_param_group({"params": [log_var], "lr": 0.05})
gen = torch.Generator().manual_seed(61)
losses = []
for step in range(5):
    mol, y = make_molecules(gen)
    pred = model(mol)
    per_task = F.huber_loss(pred, y, reduction="none", delta=0.7).mean(0)
    loss = (torch.exp(-log_var) * per_task + 0.5 * log_var).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- adam_bias
    losses.append(loss.item())
print(losses)
