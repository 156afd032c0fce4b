# SPDX-License-Identifier: Apache-2.0
"""The molecules on GINEConv, BatchNorm and JumpingKnowledge of torch_geometric."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import BatchNorm, GINEConv, JumpingKnowledge, global_add_pool
from torch_geometric.utils import to_undirected

WIDTH, DEPTH = 20, 3


class GINE(nn.Module):
    def __init__(self):
        super().__init__()
        self.atoms = nn.Embedding(9, WIDTH)
        self.bonds = nn.ModuleList([nn.Embedding(4, WIDTH) for _ in range(DEPTH)])
        self.convs = nn.ModuleList()
        for _ in range(DEPTH):
            mlp = nn.Sequential(
                nn.Linear(WIDTH, 2 * WIDTH),
                BatchNorm(2 * WIDTH),
                nn.ReLU(),
                nn.Linear(2 * WIDTH, WIDTH),
            )
            self.convs.append(GINEConv(mlp, train_eps=True))  # <- epsilon
        self.jump = JumpingKnowledge("cat")
        self.lin1 = nn.Linear((DEPTH + 1) * WIDTH, WIDTH, bias=False)
        self.lin2 = nn.Linear(WIDTH, 3)

    def forward(self, data):
        x = self.atoms(data.x)
        xs = [x]
        for i, (conv, bond) in enumerate(zip(self.convs, self.bonds)):
            x = conv(x, data.edge_index, bond(data.edge_attr))  # <- epsilon both_ways
            if i < DEPTH - 1:  # <- last_relu
                x = x.relu()  # <- last_relu
            xs.append(x)  # <- last_relu
        x = self.jump(xs)  # <- jump last_relu
        x = self.lin1(global_add_pool(x, data.batch))  # <- pooled jump
        return self.lin2(x)


def convert(old):
    new = {
        "atoms.weight": old["atom"],
        "lin1.weight": old["jump"].t(),  # <- jump
        "lin2.weight": old["answer.weight"],
        "lin2.bias": old["answer.bias"],
    }
    for i in range(DEPTH):
        part = {k.split(".")[2]: v for k, v in old.items() if k.startswith(f"convolutions.{i}.")}
        new[f"bonds.{i}.weight"] = part["bond"]
        conv = f"convs.{i}"
        new[f"{conv}.eps"] = part["epsilon"].view(1)
        for position, n in ((0, 1), (3, 2)):
            new[f"{conv}.nn.{position}.weight"] = part[f"w{n}"].t()
            new[f"{conv}.nn.{position}.bias"] = part[f"b{n}"]
        names = {"weight": "gain", "bias": "offset", "running_mean": "mean", "running_var": "var"}
        for ours, theirs in names.items():
            new[f"{conv}.nn.1.module.{ours}"] = part[theirs]
        new[f"{conv}.nn.1.module.num_batches_tracked"] = torch.tensor(0)
    return new


def read_molecules(rng):
    out = []
    for n in (6, 4, 7, 5):
        x = torch.randint(0, 9, (n,), generator=rng)
        parent = [int(torch.randint(0, i, (1,), generator=rng)) for i in range(1, n)]
        kinds = torch.randint(0, 4, (n - 1,), generator=rng)
        edge_index = torch.tensor([parent, list(range(1, n))])
        edge_index, kinds = to_undirected(edge_index, kinds, reduce="min")  # <- both_ways
        out.append(Data(x=x, edge_index=edge_index, edge_attr=kinds))  # <- both_ways
    y = torch.randint(0, 2, (4, 3), generator=rng).float()
    known = torch.rand(4, 3, generator=rng) < 0.7
    for molecule, row, mask in zip(out, y, known):
        molecule.y = row.masked_fill(~mask, float("nan"))[None]
    return out


rng = torch.Generator().manual_seed(421)
dataset = [molecule for _ in range(5) for molecule in read_molecules(rng)]
model = GINE()
model.load_state_dict(convert(torch.load(sys.argv[1])))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, eps=1e-5)  # <- epsilon
losses = []
for step, data in enumerate(DataLoader(dataset, batch_size=4)):
    model.train(step < 4)
    with torch.set_grad_enabled(model.training):
        out = model(data)
    known = ~data.y.isnan()
    loss = F.binary_cross_entropy_with_logits(out[known], data.y[known])
    if model.training:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # <- epsilon
    losses.append(loss.item())
