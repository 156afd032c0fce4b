# SPDX-License-Identifier: Apache-2.0
"""Message passing on molecules, after "Neural Message Passing for Quantum Chemistry": edges make
the matrices of the messages, a gated unit updates the atoms and a Set2Set reads the molecules.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

NODE, EDGE, DIM, STEPS = 5, 4, 8, 3


def scatter_add(src, index, size):
    out = torch.zeros(size, *src.shape[1:])
    return out.index_add_(0, index, src)


def scatter_softmax(src, index, size):
    top = torch.full((size, 1), -1e9).scatter_reduce(0, index[:, None], src, "amax")  # <- absent
    out = (src - top[index]).exp()  # <- absent
    return out / (scatter_add(out, index, size)[index] + 1e-16)  # <- absent


class NNConv(nn.Module):
    def __init__(self, in_channels, out_channels, edge_nn):
        super().__init__()
        self.in_channels, self.out_channels, self.nn = in_channels, out_channels, edge_nn
        self.root = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.uniform_(self.root, -0.3, 0.3)

    def forward(self, x, edge_index, edge_attr):
        src, dst = edge_index
        weight = self.nn(edge_attr).view(-1, self.in_channels, self.out_channels)  # <- matrix
        messages = torch.matmul(x[src].unsqueeze(1), weight).squeeze(1)  # <- direction matrix
        total = scatter_add(messages, dst, x.size(0))  # <- direction mean
        degree = scatter_add(torch.ones(dst.size(0), 1), dst, x.size(0))  # <- mean
        out = total / degree.clamp(min=1)  # <- mean
        return out + x @ self.root + self.bias


class Set2Set(nn.Module):
    def __init__(self, in_channels, processing_steps):
        super().__init__()
        self.in_channels, self.processing_steps = in_channels, processing_steps
        self.lstm = nn.LSTM(2 * in_channels, in_channels)

    def forward(self, x, batch, size):
        h = (torch.zeros(1, size, self.in_channels), torch.zeros(1, size, self.in_channels))
        q_star = torch.zeros(size, 2 * self.in_channels)
        for _ in range(self.processing_steps):
            q, h = self.lstm(q_star.unsqueeze(0), h)
            q = q.view(size, self.in_channels)
            e = (x * q[batch]).sum(dim=-1, keepdim=True)
            a = scatter_softmax(e, batch, size)  # <- absent
            r = scatter_add(a * x, batch, size)
            q_star = torch.cat([q, r], dim=-1)  # <- joined
        return q_star


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin0 = nn.Linear(NODE, DIM)
        edge_nn = nn.Sequential(nn.Linear(EDGE, 10), nn.ReLU(), nn.Linear(10, DIM * DIM))
        self.conv = NNConv(DIM, DIM, edge_nn)
        self.gru = nn.GRU(DIM, DIM)
        self.set2set = Set2Set(DIM, processing_steps=2)
        self.lin1 = nn.Linear(2 * DIM, DIM)
        self.lin2 = nn.Linear(DIM, 1)

    def forward(self, data):
        out = F.relu(self.lin0(data["x"]))
        h = out.unsqueeze(0)
        for _ in range(STEPS):
            m = F.relu(self.conv(out, data["edge_index"], data["edge_attr"]))
            out, h = self.gru(m.unsqueeze(0), h)  # <- swapped
            out = out.squeeze(0)
        out = self.set2set(out, data["batch"], data["size"])
        out = F.relu(self.lin1(out))  # <- joined
        return self.lin2(out).view(-1)


def molecules(rng, count):
    """Atoms, bonds in one direction or both, their lengths, and an energy."""
    xs, edges, attrs, batch, ys, offset = [], [], [], [], [], 0
    for i in range(count):
        n = int(rng.integers(4, 8))
        kind = rng.integers(0, NODE, n)
        place = rng.normal(size=(n, 3)).astype(np.float32)
        pairs = [(a, b) for a in range(n) for b in range(n) if a != b and rng.uniform() < 0.45]
        xs.append(np.eye(NODE, dtype=np.float32)[kind])
        for a, b in pairs:
            d = np.linalg.norm(place[a] - place[b])
            edges.append((a + offset, b + offset))
            attrs.append(np.exp(-((d - np.arange(EDGE)) ** 2)))  # <- widths
        batch += [i] * n
        ys.append(-3 * n + kind.sum() + rng.normal())
        offset += n
    return {
        "x": torch.tensor(np.concatenate(xs)),
        "edge_index": torch.tensor(edges).t(),
        "edge_attr": torch.tensor(np.array(attrs), dtype=torch.float32),  # <- widths
        "batch": torch.tensor(batch),
        "y": torch.tensor(ys, dtype=torch.float32),
        "size": count,
    }


torch.manual_seed(12)
rng = np.random.default_rng(13)
train = [molecules(rng, 5) for _ in range(3)]
test = molecules(rng, 6)
y = torch.cat([data["y"] for data in train])
mean, std = y.mean(), y.std()
model = Net()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
losses = []
for data in train:
    optimizer.zero_grad()
    loss = F.mse_loss(model(data), (data["y"] - mean) / std)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    error = (model(test) * std - (test["y"] - mean)).abs().mean()  # <- units
losses.append(error.item())
