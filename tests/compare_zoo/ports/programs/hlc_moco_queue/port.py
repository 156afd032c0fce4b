# SPDX-License-Identifier: Apache-2.0
"""Contrastive trainer with plain tensors: a FIFO of key batches, both views in one pass."""
from collections import deque
from math import cos, pi
import sys
import torch

ck = torch.load(sys.argv[1], weights_only=True)
ORDER = ["3.bias", "3.weight", "0.weight", "0.bias", "1.bias", "1.weight"]
live = [ck["query." + n].clone() for n in ORDER]
live[5] -= 1                                           # gain kept as an offset from one
slow = [ck["key." + n].clone() for n in ORDER]
slow[5] -= 1
velocity = [torch.zeros_like(w) for w in live]
LR, MU, WD, TAU = 0.1, 0.9, 1e-3, 0.2


def embed(ws, x):
    ob, ow, iw, ib, beta, gain = ws
    h = x @ iw.t() + ib
    c = h - h.mean(-1, keepdim=True)
    h = c * torch.rsqrt((c * c).mean(-1, keepdim=True) + 1e-5)  # <- variance
    h = (h + h * gain + beta).clamp_min(0)
    v = h @ ow.t() + ob
    return v * v.square().sum(-1, keepdim=True).rsqrt()


def make_views(gen):
    x, n1, n2 = (torch.randn(8, 10, generator=gen) for _ in range(3))
    return x + 0.2 * n1, x + 0.2 * n2


fifo = deque(ck["queue"].t().split(8), maxlen=4)  # <- enqueue
gen = torch.Generator().manual_seed(5)
losses = []
for step in range(5):
    first, second = make_views(gen)
    slow = [torch.lerp(s, w, 0.1) for s, w in zip(slow, live)]  # <- ema
    keys = embed(slow, second)
    leaves = [w.detach().requires_grad_() for w in live]
    qa, qb = embed(leaves, torch.cat([first, second])).chunk(2)
    siamese = 0.5 * (qa - qb).pow(2).sum(1).mean()     # unit vectors: 1 - cos
    good = (qa * keys).sum(1) / TAU
    others = torch.cat(list(fifo)) @ qa.t() / TAU
    total = torch.logsumexp(torch.cat([others, good[None]]), 0)  # <- denominator
    loss = 0.3 * siamese + (total - good).mean()
    grads = torch.autograd.grad(loss, leaves)
    rate = LR * (1 + cos(pi * step / 6)) / 2  # <- cosine
    for i, (w, d) in enumerate(zip(live, grads)):
        # the decay acts on the real gain, not on the offset
        full = w + 1 if i == 5 else w
        velocity[i] = MU * velocity[i] + (d + WD * full)
        live[i] = w - rate * velocity[i]  # <- cosine
    fifo.append(keys)  # <- enqueue
    losses.append(loss.item())
    print("step", step, "alignment", round((qa * qb).sum(1).mean().item(), 3))
print(losses)
