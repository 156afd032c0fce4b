# SPDX-License-Identifier: Apache-2.0
"""Link prediction with a relational graph network: basis matrices, one sparse product a relation,
DistMult with corrupted triples, an Adafactor of the team's own.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

NODES, RELATIONS, BASES, SIZES, EDGES, NEGATIVES = 20, 3, 2, (10, 12, 8), 48, 2


class RelGraphConv(nn.Module):
    def __init__(self, size_in, size_out):
        super().__init__()
        self.basis = nn.Parameter(torch.randn(BASES, size_in, size_out) * 0.3)
        self.coef = nn.Parameter(torch.randn(2 * RELATIONS, BASES))  # <- bases
        self.loop = nn.Linear(size_in, size_out)

    def forward(self, x, adjacency):
        out = self.loop(x)
        for r, adj in enumerate(adjacency):
            weight = (self.coef[r].view(-1, 1, 1) * self.basis).sum(0)  # <- bases
            out = out + torch.sparse.mm(adj, x @ weight)  # <- degree
        return out


class LinkPredictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(NODES, SIZES[0]))
        self.conv1 = RelGraphConv(SIZES[0], SIZES[1])
        self.conv2 = RelGraphConv(SIZES[1], SIZES[2])
        self.relation = nn.Parameter(torch.randn(RELATIONS, SIZES[2]))

    def forward(self, adjacency):
        return self.conv2(F.relu(self.conv1(self.embedding, adjacency)), adjacency)

    def score(self, h, triples):
        s, r, o = triples.unbind(1)
        return (h[s] * self.relation[r] * h[o]).sum(1)


def adjacencies(triples):
    """A normalised matrix for each relation and each inverse of one."""
    matrices = []
    for inverse in (False, True):
        for r in range(RELATIONS):
            s, _, o = triples[triples[:, 1] == r].unbind(1)
            where = torch.stack([s, o] if inverse else [o, s])  # <- inverse
            degree = torch.bincount(where[0], minlength=NODES).float()  # <- degree
            values = 1.0 / degree[where[0]]  # <- degree
            matrices.append(torch.sparse_coo_tensor(where, values, (NODES, NODES)))  # <- inverse
    return matrices


class Adafactor(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, decay_rate=0.6, eps=(1e-4, 1e-2), clip=1.0):
        super().__init__(params, {"lr": lr, "decay": decay_rate, "eps": eps, "clip": clip})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                g, state, eps = p.grad, self.state[p], group["eps"]
                t = state["step"] = state.get("step", 0) + 1
                beta2 = 1.0 - t ** (-group["decay"])  # <- decay
                squared = g**2
                if g.dim() > 1:
                    row = state.setdefault("row", torch.zeros(g.shape[:-1]))
                    col = state.setdefault("col", torch.zeros(g.shape[:-2] + g.shape[-1:]))
                    row.mul_(beta2).add_(squared.mean(-1), alpha=1 - beta2)  # <- decay
                    col.mul_(beta2).add_(squared.mean(-2), alpha=1 - beta2)  # <- decay
                    share = row / row.mean(-1, keepdim=True).clamp(min=eps[0])
                    v = share.unsqueeze(-1) * col.unsqueeze(-2)
                else:
                    v = state.setdefault("v", torch.zeros_like(g))
                    v.mul_(beta2).add_(squared, alpha=1 - beta2)  # <- decay
                update = g / v.sqrt().clamp(min=eps[0])
                rms = update.pow(2).mean().sqrt()
                update = update / (rms / group["clip"]).clamp(min=1.0)
                scale = p.pow(2).mean().sqrt().clamp(min=eps[1])
                p.sub_(update * scale * min(group["lr"], t**-0.5))


torch.manual_seed(91)
model = LinkPredictor()
torch.save(model.state_dict(), sys.argv[1])
optimizer = Adafactor(model.parameters())  # <- decay
generator = torch.Generator().manual_seed(92)
losses = []
for _ in range(4):
    s = torch.randint(0, NODES, (EDGES,), generator=generator)
    r = torch.randint(0, RELATIONS, (EDGES,), generator=generator)
    o = torch.randint(0, NODES, (EDGES,), generator=generator)
    triples = torch.stack([s, r, o], dim=1)
    negatives = triples.repeat(NEGATIVES, 1)
    random_nodes = torch.randint(0, NODES, (len(negatives),), generator=generator)
    subject = torch.rand(len(negatives), generator=generator) > 0.5
    negatives[subject, 0] = random_nodes[subject]
    negatives[~subject, 2] = random_nodes[~subject]
    h = model(adjacencies(triples[: EDGES // 2]))
    scores = model.score(h, torch.cat([triples, negatives]))
    labels = torch.cat([torch.ones(EDGES), torch.zeros(len(negatives))])
    loss = F.binary_cross_entropy_with_logits(scores, labels)  # <- averaged
    loss = loss + 0.01 * (h.pow(2).mean() + model.relation.pow(2).mean())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
