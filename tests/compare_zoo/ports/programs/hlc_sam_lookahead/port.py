# SPDX-License-Identifier: Apache-2.0
"""Tag predictor on word counts; hand-derived gradients of a flat vector, sharpness-aware update."""
import sys
import numpy as np
import torch

blob = torch.load(sys.argv[1], weights_only=True)
KEYS = ["fc2.weight", "fc2.bias", "fc1.weight", "fc1.bias",
        "norm.weight", "norm.bias", "bag.weight"]
SHAPES = [blob[k].shape for k in KEYS]
fast = torch.cat([blob[k].flatten() for k in KEYS])
slow, inertia = fast.clone(), torch.zeros_like(fast)


def split(vec):
    return [c.view(s) for c, s in zip(vec.split([s.numel() for s in SHAPES]), SHAPES)]


def loss_and_grad(vec, counts, y, on, off):
    """Weighted binary cross-entropy and its gradient, written out layer by layer."""
    v, c, w, b, gain, bias, table = split(vec)
    e = counts @ table
    cen = e - e.mean(1, keepdim=True)
    inv = (cen.square().mean(1, keepdim=True) + 1e-5).rsqrt()
    unit = cen * inv
    x = unit * gain + bias
    a = x @ w.T + b
    cdf = torch.special.ndtr(a)
    h = a * cdf
    z = h @ v.T + c
    # -log sigmoid(z) for the positives, -log sigmoid(-z) for the others
    sign, cost = 2 * y - 1, torch.where(y.bool(), on, off) / y.numel()  # <- pos_weight
    value = (cost * torch.nn.functional.softplus(-sign * z)).sum()  # <- pos_weight
    dz = -cost * sign * torch.sigmoid(-sign * z)
    da = (dz @ v) * (cdf + a * torch.exp(-a * a / 2) / (2 * np.pi) ** 0.5)  # <- gelu_grad
    dx = da @ w
    du = dx * gain
    de = inv * (du - du.mean(1, keepdim=True) - unit * (du * unit).mean(1, keepdim=True))
    parts = [dz.T @ h, dz.sum(0), da.T @ x, da.sum(0), (dx * unit).sum(0), dx.sum(0),
             counts.T @ de]
    return value.item(), torch.cat([p.flatten() for p in parts])


gen = torch.Generator().manual_seed(13)
inputs, targets = [], []
for _ in range(5):
    ids = torch.randint(0, 30, (16, 7), generator=gen).numpy()
    table = np.zeros((16, 30), dtype=np.float32)
    np.add.at(table, (np.arange(16)[:, None], ids), 1.0)  # <- duplicates
    inputs.append(torch.from_numpy(table) / 7)  # <- duplicates
    targets.append(torch.rand(16, 6, generator=gen).lt(torch.linspace(0.15, 0.6, 6)).float())
share = torch.cat(targets).mean(0)
off = torch.linspace(0.5, 1.5, 6)
on = off * (1 - share) / share  # <- pos_weight

losses = []
for n, (counts, y) in enumerate(zip(inputs, targets)):
    value, grad = loss_and_grad(fast, counts, y, on, off)
    uphill = fast + 0.1 * torch.nn.functional.normalize(grad, dim=0)  # <- ascent
    _, sharp = loss_and_grad(uphill, counts, y, on, off)
    # velocity holds the step itself; decay written as shrinkage
    inertia = 0.9 * inertia - 0.1 * sharp - 1e-4 * fast
    fast = fast + inertia
    if n & 1:  # <- lookahead
        slow = 0.5 * slow + 0.5 * fast  # <- lookahead
        fast = slow  # <- lookahead
    losses.append(value)
print(losses)
