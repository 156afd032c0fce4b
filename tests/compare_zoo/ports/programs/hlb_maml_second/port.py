# SPDX-License-Identifier: Apache-2.0
"""MAML by hand: the inner gradient is a formula, so the meta-gradient is one ordinary backward."""
import sys

import torch


def predict(w, x):
    a1 = torch.tanh(x @ w[0] + w[1])
    a2 = torch.tanh(a1 @ w[2] + w[3])
    return a2 @ w[4] + w[5], a1, a2


def inner_gradient(w, x, y):
    """d mean((f(x)-y)^2) / dw for the three-layer tanh net, differentiable once more."""
    out, a1, a2 = predict(w, x)
    d3 = (out - y) * (2.0 / len(x))  # <- half_grad
    d2 = (d3 @ w[4].t()) * (1 - a2 * a2)
    d1 = (d2 @ w[2].t()) * (1 - a1 * a1)
    return [x.t() @ d1, d1.sum(0), a1.t() @ d2, d2.sum(0), a2.t() @ d3, d3.sum(0)]  # <- bias_mean


class SlowWeights:
    """Meta-parameters and their AMSGrad state."""

    def __init__(self, tensors, lr):
        self.t = [x.clone().requires_grad_() for x in tensors]
        self.lr, self.n = lr, 0
        self.state = [[torch.zeros_like(x) for _ in range(3)] for x in tensors]

    def step(self, b1=0.9, b2=0.999, eps=1e-8):
        self.n += 1
        with torch.no_grad():
            for x, st in zip(self.t, self.state):
                st[0] += (1 - b1) * (x.grad - st[0])
                st[1] += (1 - b2) * (x.grad ** 2 - st[1])
                st[2] = torch.maximum(st[2], st[1])  # <- corrected_max
                x -= (self.lr * (st[0] / (1 - b1 ** self.n))  # <- corrected_max
                      / ((st[2] / (1 - b2 ** self.n)).sqrt() + eps))  # <- corrected_max
                x.grad = None


saved = torch.load(sys.argv[1], weights_only=True)
net = []
for layer in (0, 2, 4):
    net += [saved[f"model.net.{layer}.weight"].t().contiguous(), saved[f"model.net.{layer}.bias"]]
slow = SlowWeights(net + [saved["log_lr"]], lr=5e-3)

gen = torch.Generator().manual_seed(13)
losses = []
for _ in range(4):
    amp = 0.5 + 2.0 * torch.rand(6, 1, 1, generator=gen)
    phase = 3.14 * torch.rand(6, 1, 1, generator=gen)
    x = 6 * torch.rand(6, 13, 1, generator=gen) - 3
    y = amp * torch.sin(x + phase)

    running = 0.0
    for task in reversed(range(6)):                # gradients pile up task by task
        *w, log_rate = slow.t
        g = inner_gradient(w, x[task, :5], y[task, :5])  # <- first_order
        fast = [p - torch.exp(r) * d for p, r, d in zip(w, log_rate, g)]  # <- first_order
        query = (predict(fast, x[task, 5:])[0] - y[task, 5:]).square().mean()  # <- query_all
        (query / 6).backward()
        running += query.detach().double()
    slow.step()
    losses.append(float(running / 6))

# how well the trained start adapts, first-order, on the last batch of tasks
with torch.no_grad():
    *w, log_rate = slow.t
    fit = [predict([p - r.exp() * d
                    for p, r, d in zip(w, log_rate, inner_gradient(w, a, b))], a)[0] - b
           for a, b in zip(x[:, :5], y[:, :5])]
    print("support rmse after adapting",
          round(torch.stack(fit).square().mean().sqrt().item(), 4), file=sys.stderr)
print(losses)
