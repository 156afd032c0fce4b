# SPDX-License-Identifier: Apache-2.0
"""The graph attention network by messages along an edge list, all heads in one, as PyG has it."""

import sys

import torch
from torch import nn

N, F_IN, D, H, C = 24, 10, 6, 3, 4


def scatter_softmax(score, index):
    """Softmax among the edges that end in one node."""
    where = index[:, None].expand_as(score)
    top = torch.full((N, score.shape[1]), float("-inf"))
    top = top.scatter_reduce(0, where, score.detach(), "amax")
    weight = torch.exp(score - top[index])
    total = torch.zeros(N, score.shape[1]).index_add(0, index, weight)  # <- direction loops
    return weight / total[index]  # <- direction loops


class GATConv(nn.Module):
    def __init__(self, fin, fout, heads, slope=0.2):
        super().__init__()
        self.heads, self.fout, self.slope = heads, fout, slope
        self.lin = nn.Linear(fin, heads * fout, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, fout))
        self.att_dst = nn.Parameter(torch.empty(1, heads, fout))
        self.bias = nn.Parameter(torch.empty(heads * fout))

    def forward(self, x, edge_index):
        src, dst = edge_index
        x = self.lin(x).view(-1, self.heads, self.fout)
        from_src = (x * self.att_src).sum(-1)
        from_dst = (x * self.att_dst).sum(-1)
        alpha = from_src[src] + from_dst[dst]  # <- direction loops
        alpha = nn.functional.leaky_relu(alpha, self.slope)  # <- slope
        alpha = scatter_softmax(alpha, dst)  # <- direction loops
        messages = x[src] * alpha.unsqueeze(-1)  # <- direction loops
        out = torch.zeros_like(x).index_add_(0, dst, messages)  # <- direction loops
        return out.flatten(1) + self.bias

    @torch.no_grad()
    def take(self, state, names):
        old = [{k: state[f"{name}.{k}"] for k in ("W", "a", "bias")} for name in names]
        self.lin.weight.copy_(torch.cat([o["W"].t() for o in old]))
        both = torch.stack([o["a"].squeeze(1) for o in old])
        # the listener stands first there
        self.att_dst.copy_(both[None, :, : self.fout])
        self.att_src.copy_(both[None, :, self.fout :])
        self.bias.copy_(torch.cat([o["bias"] for o in old]))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATConv(F_IN, D, H)
        self.norm = nn.LayerNorm(H * D)
        self.conv2 = GATConv(H * D, C, 1)

    def forward(self, x, edge_index):
        x = self.conv1(x, edge_index)  # <- slope
        x = torch.where(x > 0, x, torch.expm1(x))
        return self.conv2(self.norm(x), edge_index)  # <- slope


def load_data():
    rng = torch.Generator().manual_seed(132)
    hears = torch.rand(N, N, generator=rng) < 0.15
    dst, src = torch.nonzero(hears & ~torch.eye(N, dtype=torch.bool), as_tuple=True)  # <- direction
    itself = torch.arange(N)
    src, dst = torch.cat((src, itself)), torch.cat((dst, itself))  # <- loops
    edge_index = torch.stack((src, dst))  # <- direction loops
    x = nn.functional.normalize(torch.rand(N, F_IN, generator=rng), p=1.0)  # <- rows
    y = torch.randint(C, (N,), generator=rng)
    train_mask = torch.rand(N, generator=rng) < 0.5
    return x, edge_index, y, train_mask


net = Net()
state = torch.load(sys.argv[1])
net.conv1.take(state, [f"attentions.{i}" for i in range(H)])
net.conv2.take(state, ["out_att"])
net.norm.load_state_dict({"weight": state["norm.weight"], "bias": state["norm.bias"]})
x, edge_index, y, train_mask = load_data()
weights = list(net.parameters())
averages = [[torch.zeros_like(w), torch.zeros_like(w)] for w in weights]
losses = []
for step in range(5):
    out = net(x, edge_index)
    loss = nn.functional.cross_entropy(out, y.masked_fill(~train_mask, -100))
    rate = 0.02 * 0.7**step  # <- rate
    grads = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        for w, g, (m, v) in zip(weights, grads, averages):
            full = g + 5e-3 * w
            m.lerp_(full, 0.1)
            v.lerp_(full * full, 0.001)
            root = torch.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-4
            w.sub_(rate * m / (1 - 0.9 ** (step + 1)) / root)  # <- rate
    losses.append(loss.item())
