# SPDX-License-Identifier: Apache-2.0
"""Netlist timing on edge lists: all circuits of a batch are one big graph, attention weights and
sums by scatter operations, weights kept in plain tensors."""
import sys
import torch
from torch.nn.functional import layer_norm


def scatter_sum(values, index, size):
    return values.new_zeros(size, *values.shape[1:]).index_add_(0, index, values)


def scatter_max(values, index, size):
    out = values.new_full((size, *values.shape[1:]), -torch.inf)
    where = index.view(-1, *[1] * (values.ndim - 1)).expand_as(values)
    return out.scatter_reduce_(0, where, values, reduce="amax")


def edge_softmax(energy, index, size):
    peak = scatter_max(energy, index, size)
    e = (energy - peak[index]).exp()  # <- normalise
    return e / scatter_sum(e, index, size)[index]  # <- normalise


class Graph:
    def __init__(self, circuits):
        self.kind = torch.cat([c["kind"] for c in circuits])
        self.load = torch.cat([c["load"] for c in circuits])
        sizes = torch.tensor([len(c["kind"]) for c in circuits])
        self.owner = torch.arange(len(circuits)).repeat_interleave(sizes)
        starts = sizes.cumsum(0) - sizes
        self.driver = torch.cat([c["edges"][0] + s for c, s in zip(circuits, starts)])
        self.sink = torch.cat([c["edges"][1] + s for c, s in zip(circuits, starts)])
        self.wire = torch.cat([c["wire"] for c in circuits])
        self.count = len(circuits)


def dense(sd, key, x):
    y = x @ sd[key + ".weight"].t()
    return y + sd[key + ".bias"] if key + ".bias" in sd else y


def attention(sd, pre, x, g):
    n, (heads, width) = len(x), sd[pre + "score"].shape
    src = dense(sd, pre + "source", x)[g.driver]  # <- direction
    dst = dense(sd, pre + "target", x)[g.sink]  # <- direction
    z = (src + dst + dense(sd, pre + "wire", g.wire)).view(-1, heads, width)
    z = z.clamp(min=0) + 0.2 * z.clamp(max=0)  # <- slope
    energy = torch.einsum("ehd,hd->eh", z, sd[pre + "score"])  # <- slope
    alpha = edge_softmax(energy, g.sink, n)  # <- normalise
    message = alpha[..., None] * src.view(-1, heads, width)
    agg = scatter_sum(message, g.sink, n).view(n, -1)  # <- direction
    fan = torch.bincount(g.sink, minlength=n).unsqueeze(1)  # <- fanin
    agg = agg * (fan + 1.0).log()  # <- fanin
    w_self, w_agg = sd[pre + "mix.weight"].chunk(2, dim=1)
    update = torch.relu(x @ w_self.t() + agg @ w_agg.t() + sd[pre + "mix.bias"])
    return layer_norm(x + update, x.shape[1:], sd[pre + "norm.weight"], sd[pre + "norm.bias"])


def predict(sd, g):
    x = sd["kind.weight"][g.kind] + dense(sd, "load", g.load)
    for i in range(3):
        x = attention(sd, f"layers.{i}.", x, g)
    y = dense(sd, "local", x)
    y = y / (1.0 + (-y).exp())
    cells = torch.bincount(g.owner, minlength=g.count).unsqueeze(1)  # <- readout
    mean = scatter_sum(y, g.owner, g.count) / cells  # <- readout
    return dense(sd, "out", torch.cat([mean, scatter_max(y, g.owner, g.count)], 1))  # <- readout


def huber(error):
    size = error.abs()
    return torch.where(size < 1.0, 0.5 * error * error, size - 0.5).mean()


def read_circuit(rng):
    n = int(torch.randint(6, 15, (1,), generator=rng))
    c = {"kind": torch.randint(0, 7, (n,), generator=rng)}
    c["load"] = torch.rand(n, 2, generator=rng) * 2
    sink, driver = (torch.rand(n, n, generator=rng) < 0.35).tril(-1).nonzero(as_tuple=True)
    c["edges"] = (driver, sink)
    c["wire"] = torch.randn(n, n, 3, generator=rng)[sink, driver]
    c["truth"] = torch.randn(2, generator=rng)
    return c


weights = torch.load(sys.argv[1], weights_only=True)
rng = torch.Generator().manual_seed(17)
losses = []
with torch.inference_mode():
    for batch in range(4):
        circuits = [read_circuit(rng) for _ in range(5)]
        truth = torch.stack([c["truth"] for c in circuits])
        losses.append(huber(predict(weights, Graph(circuits)) - truth).item())
print(losses)
