# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt in channels-last arithmetic: patch products, shifted depthwise sums, one image at a time, EMA kept."""
import math
import re
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

DEPTHS, DIMS, K, NCLS, STEPS = (1, 1, 2, 1), (8, 12, 16, 20), 5, 6, 5


class ChannelNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.affine = nn.Parameter(torch.empty(2, dim))

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        var = x.square().mean(-1, keepdim=True)
        return x * torch.rsqrt(var + 1e-6) * self.affine[0] + self.affine[1]


class Patchify(nn.Module):
    """k x k convolution of stride k on (H, W, C) as a single matmul."""

    def __init__(self, k, cin, cout):
        super().__init__()
        self.k = k
        self.kernel, self.offset = nn.Parameter(torch.empty(k * k * cin, cout)), nn.Parameter(torch.empty(cout))

    def forward(self, x):
        (h, w, c), k = x.shape, self.k
        x = x.reshape(h // k, k, w // k, k, c).transpose(1, 2).reshape(h // k, w // k, -1)
        return x @ self.kernel + self.offset


class Unit(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.depthwise, self.dw_offset = nn.Parameter(torch.empty(K, K, dim)), nn.Parameter(torch.empty(dim))
        self.norm = ChannelNorm(dim)
        self.expand, self.shrink = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.layer_scale = nn.Parameter(torch.empty(dim))

    def forward(self, x):
        h, w, _ = x.shape
        padded = F.pad(x, (0, 0, K // 2, K // 2, K // 2, K // 2))
        y = self.dw_offset.expand_as(x)
        for i in range(K):
            for j in range(K):
                y = y + padded[i:i + h, j:j + w] * self.depthwise[i, j]
        y = self.expand(self.norm(y))
        y = self.shrink(0.5 * y * (1 + torch.erf(y / math.sqrt(2))))
        return torch.addcmul(x, y, self.layer_scale)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        ops = [Patchify(4, 3, DIMS[0]), ChannelNorm(DIMS[0])]
        for s, (n, dim) in enumerate(zip(DEPTHS, DIMS)):
            if s:
                ops += [ChannelNorm(DIMS[s - 1]), Patchify(2, DIMS[s - 1], dim)]
            ops += [Unit(dim) for _ in range(n)]
        self.trunk = nn.Sequential(*ops)
        self.final, self.out = ChannelNorm(DIMS[-1]), nn.Linear(DIMS[-1], NCLS)

    def forward(self, chw):
        return self.out(self.final(self.trunk(chw.movedim(0, -1)).mean((0, 1))))


def adopt(net, sd):
    """Walk the timm checkpoint and this network side by side and copy with the needed transposes."""
    def fill(m, key):
        pair = sd.pop(key + ".weight"), sd.pop(key + ".bias")
        for own, t in zip(m.affine if isinstance(m, ChannelNorm) else (m.weight, m.bias), pair):
            own.copy_(t)

    prefixes = list(dict.fromkeys(
        re.match(r"(stem\.\d|stages\.\d\.downsample\.\d|stages\.\d\.blocks\.\d)", k).group(1)
        for k in sd if not k.startswith("head")))
    assert len(prefixes) == len(net.trunk)
    for m, key in zip(net.trunk, prefixes):
        if isinstance(m, ChannelNorm):
            fill(m, key)
        elif isinstance(m, Patchify):
            m.kernel.copy_(sd.pop(key + ".weight").permute(2, 3, 1, 0).flatten(0, 2))
            m.offset.copy_(sd.pop(key + ".bias"))
        else:
            m.depthwise.copy_(sd.pop(key + ".conv_dw.weight")[:, 0].permute(1, 2, 0))
            m.dw_offset.copy_(sd.pop(key + ".conv_dw.bias"))
            m.layer_scale.copy_(sd.pop(key + ".gamma"))
            for own, name in ((m.norm, ".norm"), (m.expand, ".mlp.fc1"), (m.shrink, ".mlp.fc2")):
                fill(own, key + name)
    fill(net.final, "head.norm")
    fill(net.out, "head.fc")
    assert not sd, list(sd)


net = Net()
with torch.no_grad():
    adopt(net, torch.load(sys.argv[1]))
undecayed = [p for n, p in net.named_parameters() if n.endswith(("affine", "offset", "layer_scale", "bias"))]
decayed = [p for n, p in net.named_parameters() if not any(p is q for q in undecayed)]
opt = torch.optim.AdamW([dict(params=undecayed, weight_decay=0.0), dict(params=decayed, weight_decay=0.05)],
                        lr=0.0, foreach=False)
ema = {n: p.detach().clone() for n, p in net.named_parameters()}

gen = torch.Generator().manual_seed(1234)
pictures = torch.randn(STEPS, 4, 3, 32, 32, generator=gen)
answers = torch.randint(0, NCLS, (STEPS, 4), generator=gen)
losses = []
for t in range(STEPS):
    lr = 2e-4 + t * (1e-3 - 2e-4) / 2 if t < 2 else 1e-5 + 0.5 * (1e-3 - 1e-5) * (1 + math.cos(math.pi * t / 10))
    opt.param_groups[0]["lr"] = opt.param_groups[1]["lr"] = lr
    soft, value = 0.9 * F.one_hot(answers[t], NCLS) + 0.1 / NCLS, 0.0
    for picture, want in zip(pictures[t], soft):
        part = -(want * net(picture).log_softmax(0)).sum() / 4
        part.backward()
        value += part.item()
    opt.step()
    opt.zero_grad()
    torch._foreach_lerp_(list(ema.values()), [p.detach() for p in net.parameters()], 0.01)
    losses.append(value)

print(losses)
