# SPDX-License-Identifier: Apache-2.0
"""The node classifier over an edge list: messages by index_add, softmax by segments, all heads at once."""
import sys

import torch
from torch import Tensor, nn

torch.set_num_threads(1)


def segment_sum(values: Tensor, index: Tensor, size: int) -> Tensor:
    return values.new_zeros(size, *values.shape[1:]).index_add_(0, index, values)


def segment_softmax(scores: Tensor, index: Tensor, size: int) -> Tensor:
    where = index[:, None].expand_as(scores)
    top = scores.new_full((size, scores.shape[1]), float("-inf")).scatter_reduce(0, where, scores, "amax")
    ex = torch.exp(scores - top.detach()[index])
    return ex / segment_sum(ex, index, size)[index]


class Graph:
    """Directed edges (without doubles) to which every node's own loop is added last."""

    def __init__(self, src, dst, nodes):
        code = torch.unique(dst * nodes + src)
        dst, src = torch.div(code, nodes, rounding_mode="floor"), code % nodes
        other = src != dst
        loop = torch.arange(nodes)
        self.nodes = nodes
        self.src, self.dst = torch.cat([src[other], loop]), torch.cat([dst[other], loop])
        ones = torch.ones(len(self.dst))
        degree = torch.bincount(self.dst, minlength=nodes)  # <- degree_no_loops
        self.gcn_weight = ones / (degree[self.src] * degree[self.dst]).float().sqrt()  # <- degree_no_loops


class Propagate(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.lin = nn.Linear(*weight.shape, bias=False)
        self.lin.weight.data = weight.t().clone()

    def forward(self, g, x):
        messages = x[g.src] * g.gcn_weight[:, None]  # <- degree_no_loops
        return self.lin(segment_sum(messages, g.dst, g.nodes))


class NodeNorm(nn.Module):
    def __init__(self, scale, shift, keep):
        super().__init__()
        self.scale, self.shift, self.keep = nn.Parameter(scale.clone()), nn.Parameter(shift.clone()), keep
        self.register_buffer("mu", torch.zeros_like(scale))
        self.register_buffer("sigma2", torch.ones_like(scale))

    def forward(self, x):
        mu, sigma2 = self.mu, self.sigma2  # <- running_biased
        if self.training:
            n = len(x)
            mu, sigma2 = x.mean(0), ((x - x.mean(0)) ** 2).mean(0)
            with torch.no_grad():
                self.mu = self.keep * self.mu + (1 - self.keep) * mu
                self.sigma2 = self.keep * self.sigma2 + (1 - self.keep) * sigma2 * n / (n - 1)  # <- running_biased
        return (x - mu) / (sigma2 + 1e-5).sqrt() * self.scale + self.shift  # <- running_biased


class EdgeAttention(nn.Module):
    """Every head in one projection; into and out hold the two halves of the scoring vector."""

    def __init__(self, heads):
        super().__init__()
        half = heads[0][0].shape[1]
        self.proj = nn.Parameter(torch.stack([w for w, _ in heads], 1))
        self.into = nn.Parameter(torch.stack([a[:half, 0] for _, a in heads]))
        self.out = nn.Parameter(torch.stack([a[half:, 0] for _, a in heads]))

    def forward(self, g, x):
        h = torch.einsum("nf,fkd->nkd", x, self.proj)
        score = (h * self.into).sum(-1)[g.dst] + (h * self.out).sum(-1)[g.src]
        score = nn.functional.leaky_relu(score, 0.2)  # <- leaky_default
        share = segment_softmax(score, g.dst, g.nodes)
        return segment_sum(share[..., None] * h[g.src], g.dst, g.nodes)


class Classifier(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.first = Propagate(sd["gcn.weight"])
        self.norm = NodeNorm(sd["bn.weight"], sd["bn.bias"], keep=0.7)
        self.middle = EdgeAttention([(sd[f"heads.{k}.W"], sd[f"heads.{k}.a"]) for k in range(2)])
        self.last = EdgeAttention([(sd["out_att.W"], sd["out_att.a"])])

    def forward(self, g, x):
        x = self.norm(self.first(g, x))  # <- running_biased
        x = x.clamp(min=0)
        x = nn.functional.elu(self.middle(g, x)).flatten(1)
        return self.last(g, x).squeeze(1)


def masked_ce(scores, target, mask):
    per_node = nn.functional.cross_entropy(scores, target, reduction="none")
    return (per_node * mask).sum() / mask.sum()  # <- mask_ignored


rng = torch.Generator().manual_seed(31)
src, dst = (torch.randint(0, 36, (110,), generator=rng) for _ in range(2))
x = torch.randn(36, 12, generator=rng)
y = torch.randint(0, 4, (36,), generator=rng)
in_train = torch.zeros(36).index_fill_(0, torch.randperm(36, generator=rng)[:20], 1.0)
graph = Graph(src, dst, 36)  # <- degree_no_loops
net = Classifier(torch.load(sys.argv[1]))
opt = torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-5)
decayed = list(net.first.parameters())  # <- l2_everywhere
losses = []
for _ in range(5):
    loss = masked_ce(net(graph, x), y, in_train)  # <- mask_ignored
    opt.zero_grad()
    loss.backward()
    for p in decayed:
        p.grad.add_(p.detach(), alpha=0.02)  # <- l2_everywhere
    opt.step()  # <- l2_everywhere
    losses.append(loss.item())
with torch.no_grad():
    losses.append(masked_ce(net.eval()(graph, x), y, 1 - in_train).item())
print(losses)
