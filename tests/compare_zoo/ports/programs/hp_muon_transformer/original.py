# SPDX-License-Identifier: Apache-2.0
"""A transformer classifier of sequences: Muon for its hidden matrices, AdamW for the rest."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


def zeropower_via_newtonschulz5(G, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G.T if G.size(0) > G.size(1) else G
    X = X / (X.norm() + 1e-7)
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if G.size(0) > G.size(1) else X


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buf = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buf.lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(buf, group["momentum"])
                update = zeropower_via_newtonschulz5(update)
                update = update * max(1, p.size(0) / p.size(1)) ** 0.5
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"])


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.gate = nn.Linear(dim, 2 * dim, bias=False)
        self.up = nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)
        self.n1, self.n2 = nn.RMSNorm(dim, eps=1e-6), nn.RMSNorm(dim, eps=1e-6)

    def forward(self, x):
        b, t, d = x.shape
        y = self.n1(x)
        q, k, v = (f(y).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Classifier(nn.Module):
    def __init__(self, vocab=40, dim=16, heads=2, depth=2, length=12, classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(length, dim) * 0.1)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens):
        x = self.embed(tokens) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


torch.manual_seed(21)
model = Classifier()
torch.save(model.state_dict(), sys.argv[1])
hidden = [p for n, p in model.named_parameters() if n.startswith("layers") and p.ndim == 2]
others = [p for n, p in model.named_parameters() if not (n.startswith("layers") and p.ndim == 2)]
muon = Muon(hidden, lr=0.02, momentum=0.9, weight_decay=0.01)
adam = torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.01)

gen = torch.Generator().manual_seed(22)
losses = []
for step in range(5):
    tokens = torch.randint(0, 40, (16, 12), generator=gen)
    labels = torch.randint(0, 4, (16,), generator=gen)
    loss = F.cross_entropy(model(tokens), labels)
    model.zero_grad()
    loss.backward()
    for opt in (muon, adam):
        opt.step()
    losses.append(loss.item())
print(losses)
