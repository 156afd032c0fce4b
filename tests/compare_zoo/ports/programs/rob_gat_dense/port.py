# SPDX-License-Identifier: Apache-2.0
"""The graph attention net on a dense matrix of edge counts, with hand-written normalisation and coupled Adam."""
import sys
from types import SimpleNamespace

import torch

torch.set_num_threads(1)

N, CLASSES, HIDDEN, HEADS = 40, 4, 8, 3


def read_graph():
    gen = torch.Generator().manual_seed(14)
    features = torch.randn(N, 12, generator=gen)
    pairs = torch.randint(0, N, (2, 130), generator=gen)
    pairs = pairs[:, pairs[0] != pairs[1]].T
    pairs = torch.cat([pairs, pairs[:25]])
    labels = torch.randint(0, CLASSES, (N,), generator=gen)
    order = torch.randperm(N, generator=gen)
    counts = torch.eye(N)
    for source, target in pairs.tolist():
        counts[target, source] += 1  # <- edges_reversed edges_once
    known = torch.zeros(N)
    known[order[:16]] = 1.0
    return SimpleNamespace(x=features, counts=counts, hot=torch.eye(CLASSES)[labels], known=known)


def attend(p, x, counts):
    """Row i of `counts` says how often each node j points at i."""
    h = torch.einsum("nf,fkd->knd", x, p["kernel"])
    pull = torch.einsum("knd,kd->kn", h, p["to"])
    push = torch.einsum("knd,kd->kn", h, p["from"])
    score = pull[:, :, None] + push[:, None, :]
    score = torch.maximum(score, 0.2 * score)
    score = score + counts.log()  # <- edges_once edges_reversed
    mixed = torch.softmax(score, dim=-1) @ h  # <- edges_reversed
    return mixed.transpose(0, 1).flatten(1)


class GraphNet:
    def __init__(self, path):
        sd = torch.load(path)
        self.layers = {}
        for short, long, heads in (("a", "conv1", HEADS), ("b", "conv2", 1)):
            kernel = sd[long + ".lin.weight"]
            self.layers[short] = {
                "kernel": kernel.view(heads, -1, kernel.shape[1]).permute(2, 0, 1).contiguous(),
                "from": sd[long + ".att_src"],
                "to": sd[long + ".att_dst"],
            }
        self.layers["out"] = {"shift": sd["conv2.bias"]}
        self.layers["norm"] = {"gain": sd["norm.weight"], "shift": sd["norm.bias"]}
        self.mean, self.var = sd["norm.running_mean"].clone(), sd["norm.running_var"].clone()
        for _, _, leaf in self.leaves():
            leaf.requires_grad_()

    def leaves(self):
        return [(layer, name, leaf) for layer, group in self.layers.items() for name, leaf in group.items()]

    def normalise(self, h, training):
        mean, var = self.mean, self.var
        if training:
            mean = h.mean(0)
            var = (h - mean).square().mean(0)
            with torch.no_grad():
                self.mean = 0.7 * self.mean + 0.3 * mean  # <- momentum_meaning
                self.var = 0.7 * self.var + 0.3 * var * (len(h) / (len(h) - 1))  # <- momentum_meaning
        return (h - mean) / (var + 1e-5).sqrt() * self.layers["norm"]["gain"] + self.layers["norm"]["shift"]

    def logits(self, graph, training):
        h = self.normalise(attend(self.layers["a"], graph.x, graph.counts), training)
        h = torch.where(h > 0, h, torch.expm1(h.clamp(max=0)))
        return attend(self.layers["b"], h, graph.counts) + self.layers["out"]["shift"]


class CoupledAdam:
    """Adam whose decay goes through the moments (L2), with a coefficient for each layer."""

    def __init__(self, net, lr=0.02, eps=1e-6):
        self.net, self.lr, self.eps, self.t, self.slots = net, lr, eps, 0, {}

    def coefficient(self, layer):
        return {"a": 5e-2}.get(layer, 0.0)  # <- decay_everywhere

    @torch.no_grad()
    def apply(self):
        self.t += 1
        for layer, name, leaf in self.net.leaves():
            g = leaf.grad + self.coefficient(layer) * leaf  # <- decay_everywhere
            m, v = self.slots.get((layer, name), (torch.zeros_like(g), torch.zeros_like(g)))
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            self.slots[layer, name] = m, v
            leaf -= self.lr * (m / (1 - 0.9 ** self.t)) / ((v / (1 - 0.999 ** self.t)).sqrt() + self.eps)
            leaf.grad = None


def objective(net, graph):
    teacher = (2.0 * net.logits(graph, training=False)).softmax(-1).detach()  # <- target_gradient
    scores = net.logits(graph, training=True)
    logp = scores - scores.logsumexp(-1, keepdim=True)
    unknown = 1 - graph.known
    supervised = -(logp * graph.hot).sum(-1) @ graph.known / graph.known.sum()
    gap = (logp.exp() - teacher).square().sum(-1) @ unknown / unknown.sum()  # <- target_gradient
    return supervised + 0.8 * gap


def train(path, steps=5):
    graph, net = read_graph(), GraphNet(path)
    adam = CoupledAdam(net)
    for _ in range(steps):
        value = objective(net, graph)
        value.backward()
        adam.apply()
        yield value.item()


losses = list(train(sys.argv[1]))
print(losses)
