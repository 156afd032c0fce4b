# SPDX-License-Identifier: Apache-2.0
"""Node classification on a directed random graph with SAGEConv, GATConv and GCNConv of torch_geometric."""
import sys

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

torch.set_num_threads(1)

NODES, FEATURES, CLASSES = 40, 12, 4


def make_graph():
    g = torch.Generator().manual_seed(17)
    y = torch.randint(0, CLASSES, (NODES,), generator=g)
    x = torch.rand(NODES, FEATURES, generator=g) * 2.0
    x[torch.arange(NODES), y] += 2.0
    prob = torch.full((NODES, NODES), 0.06)
    prob[y[:, None] == y[None, :]] = 0.2
    linked = torch.rand(NODES, NODES, generator=g) < prob
    linked.fill_diagonal_(False)
    edge_index = linked.nonzero().t().contiguous()  # <- edges_reversed
    train_mask = torch.rand(NODES, generator=g) < 0.4
    data = Data(x=x, y=y, edge_index=edge_index, train_mask=train_mask)  # <- edges_reversed
    return T.NormalizeFeatures()(data)


class Net(torch.nn.Module):
    def __init__(self, hidden=8, heads=2):
        super().__init__()
        self.sage = SAGEConv(FEATURES, hidden)
        self.gat = GATConv(hidden, hidden, heads=heads, concat=True)  # <- leaky_default_slope
        self.gcn = GCNConv(hidden * heads, CLASSES)  # <- degree_without_loops

    def forward(self, x, edge_index):
        x = F.relu(self.sage(x, edge_index))  # <- edges_reversed
        x = F.elu(self.gat(x, edge_index))  # <- leaky_default_slope
        x = self.gcn(x, edge_index)  # <- degree_without_loops
        return F.log_softmax(x, dim=1)


def train(model, data, optimizer):
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    loss = F.nll_loss(out[data.train_mask], data.y[data.train_mask])  # <- mask_not_rescaled
    loss.backward()
    optimizer.step()  # <- l2_without_half
    return loss.item()


def main():
    torch.manual_seed(1)
    data = make_graph()
    model = Net()
    with torch.no_grad():
        for p in (model.sage.lin_l.weight, model.sage.lin_r.weight, model.gat.att_src, model.gat.att_dst):
            p.mul_(4.0)
    torch.save(model.state_dict(), sys.argv[1])
    optimizer = torch.optim.Adam(
        [
            {"params": model.sage.parameters(), "weight_decay": 0.05},  # <- l2_without_half
            {"params": model.gat.parameters(), "weight_decay": 0.0},
            {"params": model.gcn.parameters(), "weight_decay": 0.0},
        ],
        lr=0.02,
        eps=1e-5,
    )
    return [train(model, data, optimizer) for _ in range(5)]


losses = main()
print(losses)
