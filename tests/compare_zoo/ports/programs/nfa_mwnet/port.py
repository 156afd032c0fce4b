# SPDX-License-Identifier: Apache-2.0
"""Example reweighting by nested torch.func.grad on a classifier kept as one flat vector."""
import sys
import torch
from torch.func import grad, grad_and_value

torch.set_num_threads(1)
WIDTHS = [(6, 14), (14, 14), (14, 4)]


def slices(vec):
    at = 0
    for i, o in WIDTHS:
        yield vec[at:at + i * o].view(i, o), vec[at + i * o:at + i * o + o]
        at += i * o + o


def pack(sd):
    vec = []
    for mod in ("clf.body.0", "clf.body.2", "clf.head"):
        vec += [sd[mod + ".weight"].t().reshape(-1), sd[mod + ".bias"]]
    return torch.cat(vec)


def costs(theta, x, y):
    (w1, b1), (w2, b2), (w3, b3) = slices(theta)
    z = torch.tanh(torch.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3
    return z.logsumexp(1) - z.gather(1, y.unsqueeze(1)).squeeze(1)


def example_weights(v, c):
    return torch.sigmoid(torch.tanh(torch.outer(c, v["a"]) + v["b"]) @ v["c"] + v["d"])  # <- gating


def weighted(theta, w, x, y):
    return torch.dot(w, costs(theta, x, y))


def lookahead(v, theta, base, x, y, lr):
    w = example_weights(v, base)
    w = w / w.sum().detach()  # <- sum_attached
    return theta - lr * grad(weighted)(theta, w, x, y)  # <- sum_attached


def outer(v, theta, base, x, y, xm, ym, lr):
    return costs(lookahead(v, theta, base, x, y, lr), xm, ym).mean()


class Adam:
    """Immutable: update() returns new values and a new optimizer."""

    def __init__(self, lr, n=0, moments=None):
        self.lr, self.n, self.moments = lr, n, moments or {}

    def update(self, values, g):
        n, out, mom = self.n + 1, {}, {}
        for k in values:
            m, s = self.moments.get(k, (0.0, 0.0))
            m, s = 0.9 * m + 0.1 * g[k], 0.999 * s + 0.001 * g[k] ** 2
            mom[k] = (m, s)
            out[k] = values[k] - self.lr * (m / (1 - 0.9 ** n)) / (
                torch.sqrt(s / (1 - 0.999 ** n)) + 1e-5)
        return out, Adam(self.lr, n, mom)


def make_batches(seed, steps):
    gen = torch.Generator().manual_seed(seed)
    proto = torch.randn(4, 6, generator=gen)

    def one(n, flip):
        y = torch.randint(0, 4, (n,), generator=gen)
        x = proto[y] + 0.7 * torch.randn(n, 6, generator=gen)
        bad = torch.rand(n, generator=gen) < flip  # <- flip_mask
        other = torch.randint(0, 4, (n,), generator=gen)
        return x, y + bad * (other - y)  # <- flip_mask

    for _ in range(steps):
        yield one(16, 0.4) + one(8, 0.0)


sd = torch.load(sys.argv[1], weights_only=True)
theta = pack(sd)
v = {"a": sd["vnet.layers.0.weight"][:, 0], "b": sd["vnet.layers.0.bias"],
     "c": sd["vnet.layers.2.weight"][0], "d": sd["vnet.layers.2.bias"][0]}
adam, speed, lr = Adam(2e-2), None, 0.3
losses = []
for x, y, xm, ym in make_batches(6, 5):
    base = costs(theta, x, y)
    gv, meta = grad_and_value(outer)(v, theta, base, x, y, xm, ym, lr)
    v, adam = adam.update(v, gv)  # <- weights_stale
    w = example_weights(v, base)  # <- weights_stale
    g, value = grad_and_value(weighted)(theta, w / w.sum(), x, y)
    g = g + 5e-4 * theta
    speed = g if speed is None else 0.9 * speed + g  # <- momentum_mean
    theta = theta - lr * speed
    losses.append(value.item() + meta.item())

print(losses)
