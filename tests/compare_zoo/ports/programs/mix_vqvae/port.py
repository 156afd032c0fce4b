# SPDX-License-Identifier: Apache-2.0
"""Discrete autoencoder in plain functions; codebook statistics live in a separate running state."""

import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F

CODES, BETA, KEEP, TINY = 10, 0.5, 0.8, 1e-5  # <- commit_weight


@dataclass
class Codebook:
    table: torch.Tensor
    count: torch.Tensor
    total: torch.Tensor

    def nearest(self, rows):
        return (rows.unsqueeze(1) - self.table).square().sum(-1).argmin(-1)

    def absorb(self, rows, pick):
        hits = torch.bincount(pick, minlength=CODES).float()
        sums = torch.zeros_like(self.total).index_add_(0, pick, rows)
        self.count = KEEP * self.count + (1 - KEEP) * hits  # <- count_decay
        self.total = KEEP * self.total + (1 - KEEP) * sums
        n = self.count.sum()
        even = (self.count + TINY) * n / (n + CODES * TINY)
        self.table = self.total / even[:, None]  # <- count_decay


def resblock(p, key, h):
    r = F.conv2d(h.relu(), p[key + ".block.1.weight"], padding=1).relu()
    return h + F.conv2d(r, p[key + ".block.3.weight"])  # <- residual_act


def encode(p, img):
    h = F.conv2d(img, p["encoder.0.weight"], p["encoder.0.bias"], stride=2, padding=1)
    h = resblock(p, "encoder.1", h).relu()
    rows = h.movedim(1, -1)
    return rows @ p["encoder.3.weight"][:, :, 0, 0].T + p["encoder.3.bias"]


def decode(p, rows):
    h = F.conv2d(rows.movedim(-1, 1), p["decoder.0.weight"], p["decoder.0.bias"], padding=1)
    h = resblock(p, "decoder.1", h).relu()
    return F.conv_transpose2d(h, p["decoder.3.weight"], p["decoder.3.bias"], 2, 1)


def objective(p, book, img, var):
    z = encode(p, img)
    rows = z.flatten(0, 2)
    pick = book.nearest(rows.detach())
    code = book.table[pick].view(z.shape)
    commit = (z - code).square().mean()  # <- commit_weight commit_detach
    book.absorb(rows.detach(), pick)
    passed = z - z.detach() + code  # <- straight_through
    out = decode(p, passed)
    return (out - img).square().mean() / var + BETA * commit  # <- commit_weight


blob = torch.load(sys.argv[1], weights_only=True)
book = Codebook(blob.pop("vq.embedding"), blob.pop("vq.ema_cluster_size"), blob.pop("vq.ema_w"))
p = {k: v.requires_grad_() for k, v in blob.items()}
m1 = {k: torch.zeros_like(v) for k, v in p.items()}
m2 = {k: torch.zeros_like(v) for k, v in p.items()}
top = {k: torch.zeros_like(v) for k, v in p.items()}

images = torch.randn(5, 4, 3, 8, 8, generator=torch.Generator().manual_seed(17))
spread = images.var()
losses = []
for t, img in enumerate(images, 1):
    loss = objective(p, book, img, spread)
    grads = torch.autograd.grad(loss, tuple(p.values()))
    with torch.no_grad():
        for (k, w), g in zip(p.items(), grads):
            m1[k] = torch.lerp(m1[k], g, 0.1)
            m2[k] = torch.lerp(m2[k], g * g, 0.001)
            top[k] = torch.maximum(top[k], m2[k])
            root = (top[k] / (1 - 0.999**t)).sqrt() + 1e-8
            w.sub_(5e-3 / (1 - 0.9**t) * m1[k] / root)
    losses.append(loss.item())
print(losses)
