# SPDX-License-Identifier: Apache-2.0
"""The classifier in the manner of MindSpore: Cells with construct, train step with loss scale."""
import sys

import torch


class Cell:
    def __call__(self, *args):
        return self.construct(*args)


def unfold(x, k, stride, before, after):
    n, c, h, w = x.shape
    canvas = x.new_zeros(n, c, h + before + after, w + before + after)
    canvas[:, :, before:before + h, before:before + w] = x
    return canvas.unfold(2, k, stride).unfold(3, k, stride)


class Conv2d(Cell):
    def __init__(self, weight, bias=None, stride=1, pad=(1, 1)):
        self.weight, self.bias, self.stride, self.pad = weight, bias, stride, pad

    def construct(self, x):
        patches = unfold(x, self.weight.shape[-1], self.stride, *self.pad)  # <- pad_side
        out = torch.einsum("nchwij,ocij->nohw", patches, self.weight)  # <- pad_side
        return out if self.bias is None else out + self.bias[:, None, None]


class BatchNorm2d(Cell):
    def __init__(self, gamma, beta, eps=1e-5):
        self.gamma, self.beta, self.eps = gamma, beta, eps  # <- bn_eps

    def construct(self, x):
        mean = x.mean((0, 2, 3), keepdim=True)
        centred = x - mean
        var = (centred * centred).mean((0, 2, 3), keepdim=True)
        normed = centred * torch.rsqrt(var + self.eps)  # <- bn_eps
        return normed * self.gamma[:, None, None] + self.beta[:, None, None]


class Net(Cell):
    def __init__(self, w):
        self.conv1 = Conv2d(w["stem.weight"])
        self.bn1 = BatchNorm2d(w["norm.weight"], w["norm.bias"])
        self.conv2 = Conv2d(w["down.weight"], w["down.bias"], stride=2, pad=(1, 1))  # <- pad_side
        self.dense_w, self.dense_b = w["fc.weight"], w["fc.bias"]

    def construct(self, x):
        x = torch.clamp(self.bn1(self.conv1(x)), min=0)
        x = unfold(x, 2, 2, 0, 0).amax((-1, -2))
        x = self.conv2(x)
        x = torch.where(x > 0, x, 0.1 * x)
        x = x.flatten(2).sum(-1) / (x.shape[2] * x.shape[3])
        return x @ self.dense_w.T + self.dense_b


class SmoothedLoss(Cell):
    def __init__(self, classes, smooth):
        self.off = smooth / classes  # <- smooth_spread
        self.on = 1.0 - smooth + self.off  # <- smooth_spread
        self.classes = classes

    def construct(self, logits, labels):
        target = torch.full((len(labels), self.classes), self.off)  # <- smooth_spread
        target.scatter_(1, labels[:, None], self.on)  # <- smooth_spread
        shifted = logits - logits.amax(1, keepdim=True).detach()
        logp = shifted - shifted.exp().sum(1, keepdim=True).log()
        return -(target * logp).sum(1).mean()  # <- smooth_spread


class TrainOneStepWithLossScale(Cell):
    def __init__(self, net, loss_fn, params, lr=0.1, momentum=0.9, decay=2e-2):
        self.net, self.loss_fn, self.params = net, loss_fn, params
        self.lr, self.momentum, self.decay = lr, momentum, decay
        self.accum = [torch.zeros_like(p) for p in params]
        self.scale, self.good, self.window = 1024.0, 0, 2

    def construct(self, images, labels):
        loss = self.loss_fn(self.net(images), labels)
        grads = torch.autograd.grad(loss * self.scale, self.params)
        if not all(torch.isfinite(g).all() for g in grads):
            self.scale, self.good = self.scale / 2, 0
            return loss.detach()
        with torch.no_grad():
            for p, g, m in zip(self.params, grads, self.accum):
                decay = self.decay * p if p.dim() > 1 else 0.0  # <- decay_scaled
                g = g / self.scale + decay  # <- decay_scaled
                m.mul_(self.momentum).add_(g)
                p.sub_(self.lr * (g + self.momentum * m))  # <- lookahead decay_scaled
        self.good += 1
        if self.good == self.window:
            self.scale, self.good = self.scale * 2, 0
        return loss.detach()


weights = torch.load(sys.argv[1], weights_only=True)
names = [k for k in weights if "running" not in k and "num_batches" not in k]
table = {k: weights[k].clone().requires_grad_() for k in names}
train = TrainOneStepWithLossScale(Net(table), SmoothedLoss(7, 0.1), list(table.values()))
source = torch.Generator().manual_seed(77)
losses = []
for _ in range(4):
    pixels = torch.rand(12, 3, 16, 16, generator=source) * 255.0
    labels = torch.randint(0, 7, (12,), generator=source)
    losses.append(float(train((pixels - 127.5) / 127.5, labels)))
print(losses)
