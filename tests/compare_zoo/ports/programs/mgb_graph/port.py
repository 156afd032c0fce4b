# SPDX-License-Identifier: Apache-2.0
"""The same network with dense adjacency matrices, plain functions and a hand-written Adam."""
import sys

import torch

N, F_IN, C, E = 40, 9, 4, 130


def load_data():
    g = torch.Generator().manual_seed(13)
    keys = torch.randperm(N * N, generator=g)
    keys = keys[torch.div(keys, N, rounding_mode="floor") != keys % N][:E]
    feats = torch.rand(N, F_IN, generator=g)
    labels = torch.randint(0, C, (N,), generator=g)
    mask = torch.rand(N, generator=g) < 0.5
    adj = torch.zeros(N * N)
    adj[keys] = 1.0
    return feats / feats.sum(1, keepdim=True), adj.view(N, N), labels, mask


def mean_adjacency(adj):
    incoming = adj.T  # <- direction
    return incoming / incoming.sum(1, keepdim=True).clamp(min=1)  # <- direction


def normalised_adjacency(adj):
    a = adj.T + torch.eye(N)
    d = a.sum(dim=1)  # <- degree
    return torch.diag(d ** -0.5) @ a @ torch.diag(d ** -0.5)  # <- degree


def network(p, feats, a_mean, a_hat):
    h = a_mean @ feats @ p["sage.lin_l.weight"].T + p["sage.lin_l.bias"]  # <- direction
    h = h + feats @ p["sage.lin_r.weight"].T
    h = h / h.norm(dim=1, keepdim=True).clamp(min=1e-12)  # <- row_length
    h = h.relu()
    h = h + (a_hat @ (h @ p["gcn1.lin.weight"].T) + p["gcn1.bias"]).relu()  # <- degree
    return (a_hat @ h) @ p["gcn2.lin.weight"].T + p["gcn2.bias"]  # <- degree


def masked_nll(logits, labels, mask):
    onehot = (labels[:, None] == torch.arange(C)).float()
    nll = -(onehot * (logits - logits.logsumexp(1, keepdim=True))).sum(1)
    weight = mask.float()
    weight = weight / weight.mean()  # <- train_rows
    return (nll * weight).mean()  # <- train_rows


class Adam:
    def __init__(self, params, lr, decay, betas=(0.9, 0.999), eps=1e-5):
        self.params, self.lr, self.decay, self.betas, self.eps = params, lr, decay, betas, eps
        self.m = {k: 0.0 for k in params}
        self.v = {k: 0.0 for k in params}
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for k, p in self.params.items():
            g = p.grad + self.decay(k) * p  # <- decay_first
            self.m[k] = b1 * self.m[k] + (1 - b1) * g
            self.v[k] = b2 * self.v[k] + (1 - b2) * g ** 2
            m_hat = self.m[k] / (1 - b1 ** self.t)
            v_hat = self.v[k] / (1 - b2 ** self.t)
            p -= self.lr * m_hat / (v_hat.sqrt() + self.eps)  # <- decay_first
            p.grad = None


params = torch.load(sys.argv[1], weights_only=True)
for tensor in params.values():
    tensor.requires_grad_(True)
feats, adj, labels, train = load_data()
a_mean, a_hat = mean_adjacency(adj), normalised_adjacency(adj)  # <- direction degree
adam = Adam(params, 0.02, lambda k: 5e-3 if k.startswith("sage") else 0.0)  # <- decay_first
losses = []
for _ in range(5):
    loss = masked_nll(network(params, feats, a_mean, a_hat), labels, train)
    loss.backward()
    adam.step()  # <- decay_first
    losses.append(float(loss.detach()))
print(losses)
