# SPDX-License-Identifier: Apache-2.0
"""Residual network on NHWC activations: HWIO kernels, hand-written batch norm, folded inference pass, own Nesterov."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

MOMENTUM, EPS, WD = 0.1, 1e-5, 5e-4
# (name of the checkpoint block, number of convolutions in the branch, stride, index of the strided convolution)
PLAN = [("layer1.0", 2, 1, 0), ("layer2.0", 2, 2, 0), ("layer2.1", 2, 1, 0), ("layer3.0", 3, 2, 1)]


class ConvBN:
    """One fused unit: the kernel and the norm stay apart for training, are folded for inference."""

    def __init__(self, sd, conv, bn, stride=1):
        self.kernel = sd[conv + ".weight"].permute(2, 3, 1, 0).clone().requires_grad_()        # H W I O
        self.gain_shift = torch.stack([sd[bn + ".weight"], sd[bn + ".bias"]]).requires_grad_()
        self.seen = torch.stack([sd[bn + ".running_mean"], sd[bn + ".running_var"]])
        self.stride, self.pad = stride, self.kernel.shape[0] // 2

    def conv(self, x, kernel):
        y = F.conv2d(x.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1), stride=self.stride, padding=self.pad)
        return y.permute(0, 2, 3, 1)

    def __call__(self, x):
        y = self.conv(x, self.kernel)
        var, mean = torch.var_mean(y, (0, 1, 2), correction=0)
        with torch.no_grad():
            n = y.numel() // y.shape[-1]
            self.seen.lerp_(torch.stack([mean, var * (n / (n - 1))]), MOMENTUM)
        gain, shift = self.gain_shift
        return (y - mean) * (gain * torch.rsqrt(var + EPS)) + shift

    def folded(self, x):
        gain, shift = self.gain_shift
        factor = gain * torch.rsqrt(self.seen[1] + EPS)
        return self.conv(x, self.kernel * factor) + (shift - self.seen[0] * factor)


class Residual:
    def __init__(self, sd, name, count, stride, strided):
        self.branch = [ConvBN(sd, f"{name}.conv{i + 1}", f"{name}.bn{i + 1}", stride if i == strided else 1)
                       for i in range(count)]
        self.skip = None
        if name + ".downsample.0.weight" in sd:
            self.skip = ConvBN(sd, name + ".downsample.0", name + ".downsample.1", stride)

    def units(self):
        return ([self.skip] if self.skip else []) + self.branch

    def run(self, x, how):
        short = how(self.skip, x) if self.skip else x
        for unit in self.branch[:-1]:
            x = how(unit, x).clamp(min=0)
        return F.relu(short + how(self.branch[-1], x))


class Network:
    def __init__(self, sd):
        self.stem = ConvBN(sd, "conv1", "bn1")
        self.body = [Residual(sd, *row) for row in PLAN]
        self.head = torch.cat([sd["fc.weight"].t(), sd["fc.bias"][None]]).requires_grad_()   # bias as last row

    def parameters(self):
        for unit in [self.stem] + [u for r in self.body for u in r.units()]:
            yield unit.kernel
            yield unit.gain_shift
        yield self.head

    def run(self, x, how):
        x = F.relu(how(self.stem, x))
        for r in self.body:
            x = r.run(x, how)
        return F.pad(x.mean((1, 2)), (0, 1), value=1.0) @ self.head


def train_mode(unit, x):
    return unit(x)


def infer_mode(unit, x):
    return unit.folded(x)


def dataset(seed, steps=5, n=8):
    g, xs, ys = torch.Generator().manual_seed(seed), [], []
    for _ in range(steps):
        xs.append(torch.rand(n, 3, 16, 16, generator=g).sub_(0.45).div_(0.25).permute(0, 2, 3, 1).contiguous())
        ys.append(torch.randint(0, 5, (n,), generator=g))
    return list(zip(xs, ys))


net = Network(torch.load(sys.argv[1]))
weights = list(net.parameters())
buffers = None
rate_table = [0.02, 0.02, 0.02 * 0.3, 0.02 * 0.3, 0.02 * 0.3 * 0.3]
losses, held_out = [], []
data = dataset(55)
for rate, (x, y) in zip(rate_table, data):
    scores = net.run(x, train_mode)
    loss = (scores.logsumexp(1) - scores[torch.arange(len(y)), y]).mean()
    with torch.no_grad():
        grads = torch._foreach_add(torch.autograd.grad(loss, weights), weights, alpha=WD)
        if buffers is None:
            buffers = [g.clone() for g in grads]
        else:
            torch._foreach_mul_(buffers, 0.9)
            torch._foreach_add_(buffers, grads)
        look_ahead = torch._foreach_add(grads, buffers, alpha=0.9)
        torch._foreach_add_(weights, look_ahead, alpha=-rate)
        held_out.append(F.cross_entropy(net.run(data[0][0], infer_mode), data[0][1]).item())
    losses.append(loss.item())

print(losses)
