# SPDX-License-Identifier: Apache-2.0
"""Flat-vector mean teacher: both networks are one 1-D tensor each, cut into views when needed."""
import math
import sys

import torch

# matrices first, so that weight decay covers one contiguous prefix
MATS = ["stem.weight", "body.0.weight", "body.2.weight", "head.weight"]
VECS = ["stem.bias", "norm.weight", "norm.bias", "body.0.bias", "body.2.bias", "head.bias"]

ckpt = torch.load(sys.argv[1], weights_only=True)
layout, pos = [], 0
chunks = []
for k in MATS + VECS:
    w = ckpt[k].t() if k in MATS else ckpt[k]          # (in, out) matrices
    layout.append((tuple(w.shape), pos, pos + w.numel()))
    chunks.append(w.reshape(-1))
    pos += w.numel()
n_mat = layout[len(MATS) - 1][2]
theta = torch.cat(chunks).requires_grad_()
ema = theta.detach().clone()


def logits(flat, x):
    w0, w1, w2, w3, b0, gain, shift, b1, b2, b3 = [flat[a:b].view(s) for s, a, b in layout]
    z = torch.tanh(torch.addmm(b0, x, w0))
    z = z - z.mean(1, keepdim=True)
    z = z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-5) * gain + shift
    a = torch.addmm(b1, z, w1)
    a = 0.5 * a * (1 + torch.erf(a / math.sqrt(2.0)))  # <- quick_gelu
    return torch.addmm(b3, z + torch.addmm(b2, a, w2), w3)


rng = torch.Generator().manual_seed(11)
m, v = torch.zeros_like(ema), torch.zeros_like(ema)
b1_, b2_, lr = 0.9, 0.999, 3e-3
losses = []
for it in range(1, 6):
    x = torch.randn(16, 12, generator=rng)
    y = torch.randint(0, 5, (16,), generator=rng)
    u = torch.randn(32, 12, generator=rng)
    ja, jb = (0.1 * torch.randn(2, 32, 12, generator=rng)).unbind(0)

    with torch.no_grad():                               # teacher goes first
        goal = torch.softmax(logits(ema, u + jb), 1)  # <- same_jitter
    out = logits(theta, torch.cat([u + ja, x]))         # one student pass: unlabelled on top
    soft, lab = out.split([32, 16])
    consistency = (soft.softmax(1) - goal).pow(2).sum() / goal.numel()  # <- class_sum
    ce = (lab.logsumexp(1) - lab[torch.arange(16), y]).mean()
    total = 5.0 * consistency + ce
    (g,) = torch.autograd.grad(total, theta)

    with torch.no_grad():
        m = b1_ * m + (1 - b1_) * g
        v = b2_ * v + (1 - b2_) * g * g
        root = math.sqrt(1 - b2_ ** it)
        delta = lr * root / (1 - b1_ ** it) * m / (v.sqrt() + 1e-8 * root)
        delta[:n_mat] += lr * 0.05 * theta[:n_mat]  # <- decay_all
        theta -= delta  # <- teacher_first decay_all
        keep = min(0.97, it / (9 + it))
        ema -= (1 - keep) * (ema - theta)  # <- teacher_first
    losses.append(float(total.detach()))

print(losses)
