# SPDX-License-Identifier: Apache-2.0
"""Contrastive training by cached embeddings (GradCache): chunked encoder, one loss row at a time."""
import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)


def backbone():
    # whole network in one Sequential; images enter channels-first
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 12))


SOURCES = ["encoder.conv1", "encoder.gn1", "encoder.conv2", "encoder.gn2", "encoder.fc", "projector.0", "projector.2"]


def flat_store(net, sd):
    """All weights (and the temperature in the last place) in a single vector; the modules hold views of it."""
    pieces = []
    for src in SOURCES:
        pieces += [sd[src + ".weight"], sd[src + ".bias"]]
    flat = torch.cat([p.reshape(-1) for p in pieces] + [sd["logit_scale"].view(1).neg()])   # log temperature
    grad = torch.zeros_like(flat)
    at, spans = 0, []
    for p in net.parameters():
        n = p.numel()
        p.data = flat[at:at + n].view(p.shape)
        p.grad = grad[at:at + n].view(p.shape)
        spans.append((at, at + n, p.ndim > 1))
        at += n
    return flat, grad, spans


def unit(z):
    return z / z.norm(dim=1, keepdim=True).clamp_min(1e-12)


def info_nce(a, b, log_tau):
    """a, b: (n, d). Mean over both directions and all anchors, anchors one by one."""
    n, total = len(a), 0.0
    inv = torch.exp(-log_tau)
    for own, other in ((a, b), (b, a)):
        for i in range(n):
            pos = inv * torch.dot(own[i], other[i])
            rest = torch.cat([own[:i], own[i + 1:], other[:i], other[i + 1:]])
            neg = inv * torch.mv(rest, own[i])
            total = total + torch.logaddexp(pos, neg.logsumexp(0)) - pos
    return total / (2 * n)


def views(rng, n=8):
    x = torch.randn(n, 3, 12, 12, generator=rng)
    out = []
    for _ in range(2):
        mirrored = torch.rand(n, generator=rng).lt(0.5)
        gain = torch.rand(n, 3, 1, 1, generator=rng).sub(0.5).mul(0.4).add(1)
        noise = torch.randn(x.shape, generator=rng)
        y = x.clone()
        y[mirrored] = x[mirrored].flip(-1)
        out.append(torch.addcmul(0.1 * noise, y, gain))
    return out


net = backbone()
flat, grad, spans = flat_store(net, torch.load(sys.argv[1]))
velocity = torch.zeros_like(flat)
rng = torch.Generator().manual_seed(4)
losses, taus, hits = [], [], []

for step in range(5):
    rate = 0.05 * (1 + math.cos(math.pi * step / 8))
    v1, v2 = views(rng)

    # 1. embeddings without a graph
    with torch.no_grad():
        cache = [torch.cat([net(c) for c in v.split(4)]) for v in (v1, v2)]
    # 2. loss and its gradient with respect to the embeddings and the temperature
    leaf = [c.requires_grad_() for c in cache]
    log_tau = flat[-1].clone().requires_grad_()
    loss = info_nce(unit(leaf[0]), unit(leaf[1]), log_tau)
    d1, d2, dtau = torch.autograd.grad(loss, [*leaf, log_tau])
    # 3. again with graph, chunk by chunk, fed with the cached gradients
    grad.zero_()
    for v, d in ((v2, d2), (v1, d1)):
        for c, dc in zip(v.split(4), d.split(4)):
            net(c).backward(dc)
    grad[-1] = dtau
    # 4. layer-wise adaptive rates on slices of the vector
    scaled = grad.clone()
    for lo, hi, is_matrix in spans:
        if is_matrix:
            u = grad[lo:hi] + 1e-4 * flat[lo:hi]
            scaled[lo:hi] = u * (0.01 * flat[lo:hi].norm() / u.norm())
    velocity.mul_(0.9).add_(scaled)
    flat.sub_(rate * velocity)

    with torch.no_grad():
        hits.append((unit(cache[0]) @ unit(cache[1]).T).argmax(1).eq(torch.arange(8)).float().mean().item())
    taus.append(flat[-1].exp().item())
    losses.append(loss.item())

print(losses)
