# SPDX-License-Identifier: Apache-2.0
"""MobileNetV3 written as a table of rows, norms and RMSprop by hand, without torchvision."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

# place in the checkpoint, kernel, stride, and what the row has
ROWS = [
    dict(at=1, k=3, stride=1, expand=False, se=True, act=F.relu),
    dict(at=2, k=3, stride=2, expand=True, se=False, act=F.relu),
    dict(at=3, k=5, stride=1, expand=True, se=True, act=F.hardswish),
]


class Norm(nn.Module):
    """Batch normalisation over N, H, W."""

    def __init__(self, sd, prefix, eps=1e-3, rate=0.3):
        super().__init__()
        self.scale = nn.Parameter(sd[prefix + "weight"].clone())
        self.shift = nn.Parameter(sd[prefix + "bias"].clone())
        self.register_buffer("mean", sd[prefix + "running_mean"].clone())
        self.register_buffer("var", sd[prefix + "running_var"].clone())
        self.eps, self.rate, self.frozen = eps, rate, False

    def forward(self, x):
        if self.frozen:  # <- freeze_epoch
            mean, var = self.mean, self.var  # <- bn_unbiased
        else:
            mean = x.mean((0, 2, 3))
            var = (x - mean[:, None, None]).square().mean((0, 2, 3))
            n = x.numel() / x.shape[1]
            with torch.no_grad():
                self.mean += self.rate * (mean - self.mean)
                self.var += self.rate * (var * n / (n - 1) - self.var)  # <- bn_unbiased
        gain = self.scale * (var + self.eps).rsqrt()
        return x * gain[:, None, None] + (self.shift - mean * gain)[:, None, None]


class ConvNorm(nn.Module):
    def __init__(self, sd, prefix, stride=1, depthwise=False):
        super().__init__()
        self.kernel = nn.Parameter(sd[prefix + "0.weight"].clone())
        self.norm = Norm(sd, prefix + "1.")
        self.opts = dict(stride=stride, padding=self.kernel.shape[-1] // 2, groups=self.kernel.shape[0] if depthwise else 1)

    def forward(self, x):
        return self.norm(F.conv2d(x, self.kernel, **self.opts))  # <- bn_unbiased


class Excite(nn.Module):
    def __init__(self, sd, prefix):
        super().__init__()
        self.down = nn.Parameter(sd[prefix + "fc1.weight"].flatten(1).clone())
        self.down_b = nn.Parameter(sd[prefix + "fc1.bias"].clone())
        self.up = nn.Parameter(sd[prefix + "fc2.weight"].flatten(1).clone())
        self.up_b = nn.Parameter(sd[prefix + "fc2.bias"].clone())

    def forward(self, x):
        s = F.relu(F.linear(x.mean((2, 3)), self.down, self.down_b))
        gate = F.relu6(F.linear(s, self.up, self.up_b) + 3) / 6  # <- se_gate
        return x * gate[:, :, None, None]  # <- se_gate


class Row(nn.Module):
    def __init__(self, sd, at, k, stride, expand, se, act):
        super().__init__()
        names = iter(f"features.{at}.block.{i}." for i in range(4))
        self.act = act
        self.expand = ConvNorm(sd, next(names)) if expand else None
        self.depth = ConvNorm(sd, next(names), stride, depthwise=True)
        self.se = Excite(sd, next(names)) if se else nn.Identity()
        self.project = ConvNorm(sd, next(names))

    def forward(self, x):
        h = self.act(self.expand(x)) if self.expand else x
        h = self.project(self.se(self.act(self.depth(h))))  # <- se_gate
        return x + h if h.shape == x.shape else h


class MobileNet(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.stem = ConvNorm(sd, "features.0.", stride=2)
        self.rows = nn.Sequential(*(Row(sd, **row) for row in ROWS))
        self.last = ConvNorm(sd, "features.4.")
        self.fc = nn.ParameterList(sd[f"classifier.{i}.{n}"].clone() for i in (0, 3) for n in ("weight", "bias"))

    def forward(self, x):
        x = self.rows(F.hardswish(self.stem(x)))
        x = F.hardswish(self.last(x)).flatten(2).mean(2)
        w1, b1, w2, b2 = self.fc
        return F.linear(F.hardswish(F.linear(x, w1, b1)), w2, b2)


def smooth_ce(logits, y, amount=0.1):
    classes = logits.shape[1]
    soft = torch.full_like(logits, amount / classes)  # <- smoothing
    soft.scatter_(1, y[:, None], 1 - amount + amount / classes)  # <- smoothing
    return -(soft * logits.log_softmax(1)).sum(1).mean()  # <- smoothing


class RMSProp:
    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr
        self.sq = [torch.zeros_like(p) for p in self.params]
        self.buf = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def update(self, grads):
        for p, g, sq, buf in zip(self.params, grads, self.sq, self.buf):
            g = g + 1e-5 * p
            sq.mul_(0.9).add_(0.1 * g * g)
            buf.mul_(0.9).add_(g / (sq.sqrt() + 0.0316))  # <- rmsprop_eps
            p -= self.lr * buf  # <- rmsprop_eps


def load_pictures():
    g = torch.Generator().manual_seed(1234)
    x = torch.randint(0, 256, (5, 4, 3, 16, 16), generator=g, dtype=torch.uint8)
    y = torch.randint(0, 7, (5, 4), generator=g)
    x = torch.floor(x * torch.linspace(0.4, 1.0, 7)[y].view(5, 4, 1, 1, 1))
    mean, std = torch.tensor([123.675, 116.28, 103.53]), torch.tensor([58.395, 57.12, 57.375])
    return (x - mean.view(3, 1, 1)) / std.view(3, 1, 1), y


net = MobileNet(torch.load(sys.argv[1]))
opt = RMSProp(net.parameters(), lr=0.002)
losses = []
for epoch, (x, y) in enumerate(zip(*load_pictures())):
    for m in net.modules():
        if isinstance(m, Norm):
            m.frozen = epoch >= 3  # <- freeze_epoch
    loss = smooth_ce(net(x), y)  # <- smoothing
    opt.update(torch.autograd.grad(loss, opt.params))  # <- rmsprop_eps
    losses.append(loss.item())
print(losses)
