# SPDX-License-Identifier: Apache-2.0
"""The same graph classifier on padded dense adjacency matrices, functional weights and a closure-driven step."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

NMAX, FIN, NCLS = 9, 6, 3


class DenseGCN(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.theta = nn.Parameter(torch.empty(cin, cout))
        self.shift = nn.Parameter(torch.empty(cout))

    def forward(self, x, hood):
        root = hood.sum(-1).clamp(min=1).rsqrt()
        spread = root[:, :, None] * hood * root[:, None]
        return (spread @ x) @ self.theta + self.shift          # aggregate first, then project


class DenseGAT(nn.Module):
    """Additive attention; `merge` averages the heads instead of joining them."""

    def __init__(self, cin, cout, heads, slope, merge):
        super().__init__()
        self.slope, self.merge = slope, merge
        self.theta = nn.Parameter(torch.empty(heads, cin, cout))
        self.score = nn.Parameter(torch.empty(2, heads, cout))  # sender, receiver
        self.shift = nn.Parameter(torch.empty(cout if merge else heads * cout))

    def forward(self, x, hood):
        z = torch.einsum("bnc,hco->bhno", x, self.theta)
        sent, received = torch.einsum("bhno,sho->sbhn", z, self.score)
        e = F.leaky_relu(received[..., :, None] + sent[..., None, :], self.slope)
        e = e.masked_fill(hood[:, None] == 0, -1e9)
        a = e.softmax(-1) * hood[:, None].any(-1, keepdim=True)
        y = a @ z
        y = y.mean(1) if self.merge else y.transpose(1, 2).flatten(2)
        return y + self.shift


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.readout = nn.Linear(10, NCLS)
        self.third = DenseGAT(16, 10, 2, 0.1, merge=True)
        self.second = DenseGAT(12, 8, 2, 0.2, merge=False)
        self.first = DenseGCN(FIN, 12)

    def forward(self, x, hood, real):
        for layer, act in ((self.first, torch.relu), (self.second, F.elu), (self.third, F.elu)):
            x = act(layer(x, hood)) * real[..., None]
        return self.readout(x.sum(1) / real.sum(1, keepdim=True))


def convert(sd):
    def heads(w, h):
        return w.unflatten(0, (h, -1)).transpose(1, 2)

    new = {"first.theta": sd["conv1.lin.weight"].t(), "first.shift": sd["conv1.bias"]}
    for src, dst in (("conv2", "second"), ("conv3", "third")):
        new[dst + ".theta"] = heads(sd[src + ".lin.weight"], 2)
        new[dst + ".score"] = torch.cat([sd[src + ".att_src"], sd[src + ".att_dst"]])
        new[dst + ".shift"] = sd[src + ".bias"]
    for k in ("weight", "bias"):
        new["readout." + k] = sd["lin." + k]
    return new


def padded_graphs(count, seed):
    g = torch.Generator().manual_seed(seed)
    x, hood = torch.zeros(count, NMAX, FIN), torch.zeros(count, NMAX, NMAX)
    real, y = torch.zeros(count, NMAX), torch.zeros(count, dtype=torch.long)
    for i in range(count):
        n = torch.randint(5, 10, (1,), generator=g).item()
        upper = (torch.rand(n, n, generator=g) < 0.35).float().triu(1)
        hood[i, :n, :n] = upper + upper.t() + torch.eye(n)
        x[i, :n] = torch.randn(n, FIN, generator=g)
        real[i, :n] = 1
        y[i] = torch.randint(0, NCLS, (1,), generator=g)
    return torch.utils.data.TensorDataset(x, hood, real, y)


net = DenseNet()
net.load_state_dict(convert(torch.load(sys.argv[1])))
opt = torch.optim.Adam(net.parameters(), lr=5e-3, weight_decay=5e-4, foreach=True)
graphs = padded_graphs(12, 71)
losses, best, snapshots = [], 0.0, []


def step_on(rows):
    x, hood, real, y = graphs[rows]

    def closure():
        opt.zero_grad()
        loss = F.cross_entropy(net(x, hood, real), y)
        loss.backward()
        return loss
    return opt.step(closure).item()


@torch.no_grad()
def accuracy():
    x, hood, real, y = graphs[:]
    return (net(x, hood, real).argmax(-1) == y).float().mean().item()


for it in range(6):
    first = 4 * (it % 3)
    losses.append(step_on(slice(first, first + 4)))
    score = accuracy()
    if score >= best:                                          # checkpoint in memory
        best = score
        snapshots.append({k: v.clone() for k, v in net.state_dict().items()})

print(losses)
