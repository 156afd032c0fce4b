# SPDX-License-Identifier: Apache-2.0
"""GATv2 node classifier on an edge list with scatter softmax, in the manner of PyG."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

N, F_IN, HID, HEADS, CLASSES = 24, 9, 6, 3, 4


def scatter_softmax(src, index, num_nodes):
    idx = index.view(-1, 1).expand_as(src)
    top = torch.full((num_nodes, src.shape[1]), float("-inf"))
    top = top.scatter_reduce(0, idx, src, reduce="amax", include_self=True)
    out = (src - top[index]).exp()  # <- softmax_side
    total = torch.zeros(num_nodes, src.shape[1]).index_add(0, index, out)  # <- softmax_side
    return out / (total[index] + 1e-16)  # <- softmax_side


class GATv2Conv(nn.Module):
    def __init__(self, in_channels, out_channels, heads, concat=True, negative_slope=0.2):
        super().__init__()
        self.heads, self.out_channels, self.concat = heads, out_channels, concat
        self.negative_slope = negative_slope
        self.lin_l = nn.Linear(in_channels, heads * out_channels)
        self.lin_r = nn.Linear(in_channels, heads * out_channels)
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(heads * out_channels if concat else out_channels))
        nn.init.xavier_uniform_(self.att)

    def forward(self, x, edge_index):
        x_l = self.lin_l(x).view(-1, self.heads, self.out_channels)
        x_r = self.lin_r(x).view(-1, self.heads, self.out_channels)
        source, target = edge_index
        z = x_l[source] + x_r[target]
        z = F.leaky_relu(z, self.negative_slope)  # <- leaky_slope
        alpha = (z * self.att).sum(dim=-1)  # <- leaky_slope
        alpha = scatter_softmax(alpha, target, x.shape[0])
        message = x_l[source] * alpha.unsqueeze(-1)
        out = torch.zeros_like(x_l).index_add(0, target, message)
        out = out.flatten(1) if self.concat else out.mean(dim=1)  # <- head_mean
        return out + self.bias


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATv2Conv(F_IN, HID, HEADS)
        self.conv2 = GATv2Conv(HID * HEADS, CLASSES, HEADS, concat=False)

    def forward(self, x, edge_index):
        loops = torch.arange(x.shape[0]).repeat(2, 1)  # <- self_loops
        edge_index = torch.cat([edge_index, loops], dim=1)  # <- self_loops
        x = F.elu(self.conv1(x, edge_index))
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


torch.manual_seed(0)
model = Net()
g = torch.Generator().manual_seed(17)
pairs = torch.randperm(N * N, generator=g)[:90]
edge_index = torch.stack([pairs // N, pairs % N])
edge_index = edge_index[:, edge_index[0] != edge_index[1]]
x = torch.randn(N, F_IN, generator=g) * 2
y = torch.randint(CLASSES, (N,), generator=g)
train_mask = torch.rand(N, generator=g) < 0.6
data = {"edge_index": edge_index, "x": x, "y": y, "train_mask": train_mask}
torch.save({"model": model.state_dict(), "data": data}, sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-3)  # <- decay_form
losses = []
for epoch in range(5):
    model.train()
    optimizer.zero_grad()
    out = model(x, edge_index)
    loss = F.nll_loss(out[train_mask], y[train_mask])
    loss.backward()
    optimizer.step()  # <- decay_form
    losses.append(loss.item())
print(losses)
