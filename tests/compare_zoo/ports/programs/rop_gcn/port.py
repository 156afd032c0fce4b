# SPDX-License-Identifier: Apache-2.0
"""Node classifier over a dense propagation matrix, trained by a small fit loop with callbacks."""
import sys

import torch

torch.set_num_threads(1)


class Graph:
    """The whole citation graph as dense arrays."""

    def __init__(self, seed, n=36, width=20, kinds=4, links=110):
        g = torch.Generator().manual_seed(seed)
        label = torch.randint(kinds, (n,), generator=g)
        words = (torch.rand(n, width, generator=g) < 0.3).float()
        words.scatter_(1, label[:, None], 1.0)
        ends = torch.randint(n, (2, links), generator=g).T
        ends = ends[ends[:, 0] != ends[:, 1]]
        ends = torch.cat([ends, ends[:25]])
        self.train = (torch.rand(n, generator=g) < 0.5).float()
        self.one_hot = torch.eye(kinds)[label]
        self.words = words / words.sum(1, keepdim=True).clamp(min=1.0)  # <- features_unnormalised
        self.spread = self.propagation(ends, n)  # <- adjacency_transposed duplicates_lost

    @staticmethod
    def propagation(ends, n):
        start, stop = ends.unbind(1)
        where = (stop, start)  # <- adjacency_transposed
        a = torch.zeros(n, n)
        a.index_put_(where, torch.ones(len(ends)), accumulate=True)  # <- adjacency_transposed duplicates_lost
        a += torch.eye(n)
        d = torch.diag(a.sum(1).rsqrt())
        return d @ a @ d


class Layer:
    def __init__(self, kernel, offset, l2):
        self.kernel = kernel.T.clone().requires_grad_()
        self.offset = offset.clone().requires_grad_()
        self.l2 = l2

    def __call__(self, spread, h):
        return (spread @ h) @ self.kernel + self.offset  # <- adjacency_transposed duplicates_lost

    @property
    def variables(self):
        return [self.kernel, self.offset]


class Classifier:
    def __init__(self, weights, l2=5e-3):
        by_layer = [(1, l2), (2, l2), (3, 0.0)]  # <- decay_on_all_layers
        self.layers = [
            Layer(weights[f"conv{i}.lin.weight"], weights[f"conv{i}.bias"], amount)  # <- decay_on_all_layers
            for i, amount in by_layer
        ]

    def logits(self, graph):
        first, middle, last = self.layers
        h = first(graph.spread, graph.words).clamp(min=0)  # <- features_unnormalised
        h = h + middle(graph.spread, h).clamp(min=0)
        return last(graph.spread, h)

    def loss(self, graph):
        per_node = -(graph.one_hot * torch.log_softmax(self.logits(graph), dim=1)).sum(1)
        share = graph.train / graph.train.sum()  # <- mask_mean_over_nodes
        return (per_node * share).sum()  # <- mask_mean_over_nodes


class Adam:
    def __init__(self, lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8):
        self.lr, self.beta1, self.beta2, self.eps = lr, beta1, beta2, eps
        self.slots, self.count = {}, 0

    def tick(self):
        self.count += 1

    @torch.no_grad()
    def change(self, key, w, g):
        m, v = self.slots.get(key, (torch.zeros_like(w), torch.zeros_like(w)))
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * g.pow(2)
        self.slots[key] = (m, v)
        m_hat = m / (1 - self.beta1**self.count)
        v_hat = v / (1 - self.beta2**self.count)
        w.sub_(self.lr * m_hat / (v_hat.sqrt() + self.eps))


class Trainer:
    def __init__(self, net, optimiser, on_epoch):
        self.net, self.optimiser, self.on_epoch = net, optimiser, on_epoch

    def step(self, graph):
        value = self.net.loss(graph)  # <- mask_mean_over_nodes
        value.backward()
        self.optimiser.tick()
        for i, layer in enumerate(self.net.layers):
            for j, w in enumerate(layer.variables):
                grad = w.grad + layer.l2 * w.detach()  # <- decay_on_all_layers
                self.optimiser.change((i, j), w, grad)  # <- decay_on_all_layers
                w.grad = None
        return value.item()

    def fit(self, graph, epochs):
        for _ in range(epochs):
            self.on_epoch(self.step(graph))


losses = []
trainer = Trainer(Classifier(torch.load(sys.argv[1])), Adam(), losses.append)
trainer.fit(Graph(5), epochs=5)
print(losses)
