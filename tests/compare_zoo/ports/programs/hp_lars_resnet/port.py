# SPDX-License-Identifier: Apache-2.0
"""ResNet as one flat vector of weights with views into it; LARS by segment sums; batch norm by hand."""
import sys
from collections import OrderedDict

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
ORDER = ["conv1.weight", "layer1.0.conv1.weight", "layer1.0.conv2.weight", "layer2.0.conv1.weight",
         "layer2.0.conv2.weight", "layer2.0.downsample.0.weight", "fc.weight"]
NORMS = ["bn1", "layer1.0.bn1", "layer1.0.bn2", "layer2.0.bn1", "layer2.0.bn2", "layer2.0.downsample.1"]


class Store:
    """theta: first all kernels, then all one-dimensional parameters. grad: a twin, filled by autograd in place."""

    def __init__(self, sd):
        picked = OrderedDict((n, sd[n]) for n in ORDER)
        picked["fc.bias"] = sd["fc.bias"]
        for n in NORMS:
            picked[n + ".weight"], picked[n + ".bias"] = sd[n + ".weight"], sd[n + ".bias"]
        sizes = [t.numel() for t in picked.values()]
        self.theta = torch.cat([t.reshape(-1) for t in picked.values()])
        self.grad = torch.zeros_like(self.theta)
        self.mu = torch.zeros_like(self.theta)
        self.view = {}
        for (n, t), piece, twin in zip(picked.items(), self.theta.split(sizes), self.grad.split(sizes)):
            leaf = piece.view(t.shape).requires_grad_()
            leaf.grad = twin.view(t.shape)
            self.view[n] = leaf
        self.cut = sum(sizes[:len(ORDER)])
        self.segment = torch.repeat_interleave(torch.arange(len(ORDER)), torch.tensor(sizes[:len(ORDER)]))
        self.running = {n: [sd[n + ".running_mean"].clone(), sd[n + ".running_var"].clone()] for n in NORMS}

    def lengths(self, vector):
        squares = torch.zeros(len(ORDER)).index_add_(0, self.segment, vector[:self.cut] ** 2)
        return squares.sqrt()

    @torch.no_grad()
    def lars(self, lr_kernel, lr_rest, wd=1e-4, trust=0.02, momentum=0.9):
        w, g = self.lengths(self.theta.detach()), self.lengths(self.grad)
        ratio = torch.where((w > 0) & (g > 0), trust * w / (g + wd * w + 1e-8), torch.ones_like(w))
        self.mu *= momentum
        self.mu[:self.cut] += (self.grad[:self.cut] + wd * self.theta[:self.cut]) * ratio[self.segment]
        self.mu[self.cut:] += self.grad[self.cut:]
        lr = torch.full_like(self.theta, lr_rest)
        lr[:self.cut] = lr_kernel
        self.theta.detach().sub_(lr * self.mu)
        self.grad.zero_()
        return ratio


def bn(store, name, x, training):
    mean, var = store.running[name]
    if training:
        n = x.numel() // x.shape[1]
        m = x.mean((0, 2, 3))
        v = (x - m[:, None, None]).square().mean((0, 2, 3))
        with torch.no_grad():
            mean += 0.1 * (m - mean)
            var += 0.1 * (v * n / (n - 1) - var)
    else:
        m, v = mean, var
    gain = store.view[name + ".weight"] / torch.sqrt(v + 1e-5)
    return x * gain[:, None, None] + (store.view[name + ".bias"] - m * gain)[:, None, None]


def residual(store, at, x, training, stride=1):
    p = store.view
    y = F.conv2d(x, p[at + "conv1.weight"], stride=stride, padding=1)
    y = bn(store, at + "bn1", y, training).relu()
    y = bn(store, at + "bn2", F.conv2d(y, p[at + "conv2.weight"], padding=1), training)
    if at + "downsample.0.weight" in p:
        kernel = p[at + "downsample.0.weight"].flatten(1)
        x = torch.einsum("oc,nchw->nohw", kernel, x[:, :, ::stride, ::stride])
        x = bn(store, at + "downsample.1", x, training)
    return torch.relu(y + x)


def network(store, x, training=True):
    x = bn(store, "bn1", F.conv2d(x, store.view["conv1.weight"], padding=1), training).relu()
    x = residual(store, "layer2.0.", residual(store, "layer1.0.", x, training), training, 2)
    return F.linear(x.flatten(2).mean(-1), store.view["fc.weight"], store.view["fc.bias"])


store = Store(torch.load(sys.argv[1]))
gen = torch.Generator().manual_seed(52)
data, target = torch.randn(48, 3, 8, 8, generator=gen), torch.randint(0, 6, (48,), generator=gen)
losses, ratios = [], []
for factor in ((torch.arange(5, 0, -1) / 5) ** 2).tolist():
    chosen = torch.randperm(48, generator=gen).narrow(0, 0, 16)
    logits = network(store, data.index_select(0, chosen))
    loss = F.nll_loss(logits.log_softmax(-1), target.index_select(0, chosen))
    loss.backward()
    ratios.append(store.lars(0.5 * factor, 0.05 * factor))
    losses.append(loss.item())
with torch.no_grad():
    losses.append(F.cross_entropy(network(store, data, training=False), target).item())
print(losses)
