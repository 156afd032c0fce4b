# SPDX-License-Identifier: Apache-2.0
"""The link predictor on a list of edges: messages gathered, weighted and added up by index, bases
applied before relations, the objective compiled by inductor; Adafactor of torch.
"""

import sys

import torch
import torch.nn.functional as F

NODES, R, EDGES = 20, 3, 48


class Layer(torch.nn.Module):
    def __init__(self, old, name):
        super().__init__()
        take = {k.removeprefix(f"{name}."): v.clone() for k, v in old.items()}
        self.bases = torch.nn.Parameter(take["basis"])
        self.n_in, self.n_out = take["basis"].shape[1:]
        # [bases, kinds]
        self.coef = torch.nn.Parameter(take["coef"].t().contiguous())  # <- bases
        self.own = torch.nn.Linear(self.n_in, self.n_out)
        self.own.load_state_dict({k: take[f"loop.{k}"] for k in ("weight", "bias")})

    def forward(self, x, source, kind, sink, norm):
        by_basis = x @ self.bases
        share = self.coef[:, kind] * norm  # <- degree bases
        messages = torch.einsum("be,beo->eo", share, by_basis[:, source])  # <- degree bases
        return self.own(x).index_add(0, sink, messages)  # <- inverse


class Encoder(torch.nn.Module):
    def __init__(self, old):
        super().__init__()
        self.table = torch.nn.Parameter(old["embedding"].clone())
        self.layers = torch.nn.ModuleList([Layer(old, f"conv{n}") for n in (1, 2)])
        self.relation = torch.nn.Parameter(old["relation"].clone())

    def forward(self, edges):
        return self.layers[1](self.layers[0](self.table, *edges).relu(), *edges)


@torch.compile(backend="inductor")
def objective(x, relation, heads, kinds, tails):
    """Both losses; the true triples come first."""
    score = (x[heads] * relation[kinds] * x[tails]).sum(1)
    right, wrong = score[:EDGES], score[EDGES:]
    penalty = 0.01 * (x.square().mean() + relation.square().mean())
    loss = (F.softplus(-right).sum() + F.softplus(wrong).sum()) / (3 * EDGES)  # <- averaged
    return loss + penalty


def both_ways(s, r, o):
    source, kind, sink = torch.cat((s, o)), torch.cat((r, r + R)), torch.cat((o, s))  # <- inverse
    key = sink * (2 * R) + kind  # <- degree
    count = torch.bincount(key, minlength=NODES * 2 * R)  # <- degree
    return source, kind, sink, count[key].float().reciprocal()  # <- degree


model = Encoder(torch.load(sys.argv[1]))
optimizer = torch.optim.Adafactor(
    model.parameters(), lr=0.1, beta2_decay=-0.6, eps=(1e-4, 1e-2)
)  # <- decay
rng = torch.Generator().manual_seed(92)
losses = []
for _ in range(4):
    s, r, o = (torch.randint(0, n, (EDGES,), generator=rng) for n in (NODES, R, NODES))
    anyone = torch.randint(0, NODES, (2, EDGES), generator=rng)
    coin = torch.rand(2, EDGES, generator=rng) > 0.5
    heads = torch.cat((s[None], torch.where(coin, anyone, s))).flatten()
    tails = torch.cat((o[None], torch.where(coin, o, anyone))).flatten()
    edges = both_ways(s[: EDGES // 2], r[: EDGES // 2], o[: EDGES // 2])
    x = model(edges)
    loss = objective(x, model.relation, heads, r.repeat(3), tails)  # <- averaged
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
