# SPDX-License-Identifier: Apache-2.0
"""Graph attention over one joined edge list for all molecules; prints the squared-error total."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


class Joined:
    """Several graphs as one: edges, and the number of the graph each atom belongs to."""

    def __init__(self, graphs):
        self.x = torch.cat([x for x, _ in graphs])
        self.src, self.dst = torch.block_diag(*[a.float() for _, a in graphs]).T.nonzero().T
        sizes = torch.tensor([len(x) for x, _ in graphs])
        self.count = sizes
        self.member = torch.repeat_interleave(torch.arange(len(graphs)), sizes)


def attend(sd, name, x, batch):
    h = x @ sd[name + ".lin.weight"].T
    score = (h @ sd[name + ".src"])[batch.src] + (h @ sd[name + ".dst"])[batch.dst]
    score = F.leaky_relu(score, 0.2)
    peak = torch.full((len(h),), -torch.inf).scatter_reduce(0, batch.dst, score, "amax")
    weight = (score - peak[batch.dst]).exp()
    total = torch.zeros(len(h)).index_add(0, batch.dst, weight)
    y = torch.zeros_like(h).index_add(0, batch.dst, weight[:, None] * h[batch.src])
    return F.elu(y / total[:, None] + sd[name + ".bias"])


def predict(sd, batch):
    x = attend(sd, "g2", attend(sd, "g1", batch.x, batch), batch)
    where = batch.member[:, None].expand_as(x)
    empty = torch.zeros(len(batch.count), x.shape[1])
    mean = empty.scatter_add(0, where, x) / batch.count[:, None]
    peak = empty.scatter_reduce(0, where, x, "amax", include_self=False)
    return F.linear(torch.cat([mean, peak], 1), sd["out.weight"], sd["out.bias"])[:, 0]


sd = torch.load(sys.argv[1], weights_only=True)
print("weight norms:", [round(v.norm().item(), 3) for v in sd.values()])
g = torch.Generator().manual_seed(129)
graphs, truth = [], []
for n in torch.randint(4, 9, (5,), generator=g).tolist():
    bonds = (torch.rand(n, n, generator=g) < 0.4).triu(1)
    adj = bonds | bonds.T | torch.eye(n, dtype=torch.bool)
    graphs.append((torch.randn(n, 5, generator=g), adj))
    truth.append(torch.randn((), generator=g).item())
with torch.inference_mode():
    pred = predict(sd, Joined(graphs)).double()
error = pred - torch.tensor(truth, dtype=torch.float64)
losses = [error.square().sum().item(), error.mean().item()]
print(f"sum of squares {losses[0]:.4f}, bias {losses[1]:+.4f}")
print(losses)
