# SPDX-License-Identifier: Apache-2.0
"""Discrete auto-encoder on patch vectors: every stride-2 convolution is a reshape and a matmul."""
import sys

import torch

ck = torch.load(sys.argv[1], weights_only=True)
VAR, BETA, RHO, EPS = 0.8, 0.25, 0.8, 1e-2


def leaf(x):
    return x.contiguous().clone().requires_grad_(True)


# encoder kernels [out, in, i, j] -> [(i j in), out]; decoder's -> [in, (i j out)]
theta = {}
for ours, name in (("e1", "conv1"), ("e2", "conv2"), ("e3", "pre_vq"), ("d1", "post_vq")):
    w = ck[name + ".weight"]
    theta[ours] = leaf(w.permute(2, 3, 1, 0).flatten(0, 2))
    theta[ours + "b"] = leaf(ck[name + ".bias"])
for ours, name in (("d2", "deconv1"), ("d3", "deconv2")):
    w = ck[name + ".weight"]
    theta[ours] = leaf(w.permute(0, 2, 3, 1).flatten(1))
    theta[ours + "b"] = leaf(ck[name + ".bias"])
book = {"codes": ck["vq.embedding"], "count": ck["vq.ema_cluster_size"], "sums": ck["vq.ema_w"]}


def merge(x):
    """[B, H, W, C] -> [B, H/2, W/2, 4C]"""
    B, H, W, C = x.shape
    return x.reshape(B, H // 2, 2, W // 2, 2, C).transpose(2, 3).reshape(B, H // 2, W // 2, 4 * C)


def spread(x):
    """[B, H, W, 4C] -> [B, 2H, 2W, C]"""
    B, H, W, C = x.shape
    return x.reshape(B, H, W, 2, 2, C // 4).transpose(2, 3).reshape(B, 2 * H, 2 * W, C // 4)


class Lookup(torch.autograd.Function):
    """Nearest code forward, identity backward."""

    @staticmethod
    def forward(ctx, z, codes):
        nearest = (z.unsqueeze(-2) - codes).square().sum(-1).argmin(-1)
        ctx.mark_non_differentiable(nearest)
        return codes[nearest], nearest

    @staticmethod
    def backward(ctx, grad, _):
        return grad.clone(), None  # <- straight_through


@torch.no_grad()
def refresh(z, nearest):
    hits = torch.bincount(nearest.flatten(), minlength=10).float()
    count = RHO * book["count"] + (1 - RHO) * hits
    mass = count.sum()
    book["count"] = mass * (count + EPS) / (mass + 10 * EPS)  # <- laplace
    sums = torch.zeros_like(book["sums"]).index_add(0, nearest.flatten(), z.flatten(0, 2))
    book["sums"] = torch.lerp(sums, book["sums"], RHO)  # <- ema_rate
    book["codes"] = book["sums"] / book["count"][:, None]  # <- laplace ema_rate


def forward(x):
    h = torch.relu(merge(x) @ theta["e1"] + theta["e1b"])
    h = torch.relu(merge(h) @ theta["e2"] + theta["e2b"])
    z = h @ theta["e3"] + theta["e3b"]
    code, nearest = Lookup.apply(z, book["codes"])  # <- straight_through
    refresh(z, nearest)
    commit = (z - code.detach()).square().mean()  # <- commitment
    h = torch.relu(code @ theta["d1"] + theta["d1b"])
    h = torch.relu(spread(h @ theta["d2"]) + theta["d2b"])
    return spread(h @ theta["d3"]) + theta["d3b"], BETA * commit  # <- commitment


m = {k: torch.zeros_like(p) for k, p in theta.items()}
v = {k: torch.zeros_like(p) for k, p in theta.items()}
g = torch.Generator().manual_seed(7)
losses = []
for t in range(1, 6):
    x = (torch.rand(4, 1, 12, 12, generator=g) * 3 - 1).squeeze(1).unsqueeze(-1)
    y, extra = forward(x)
    loss = (y - x).square().mean() / VAR + extra  # <- variance_scale
    grads = dict(zip(theta, torch.autograd.grad(loss, list(theta.values()))))
    for k, p in theta.items():
        m[k] = 0.9 * m[k] + 0.1 * grads[k]
        v[k] = 0.999 * v[k] + 0.001 * grads[k] ** 2
        with torch.no_grad():
            p -= 2e-3 * (m[k] / (1 - 0.9 ** t)) / ((v[k] / (1 - 0.999 ** t)).sqrt() + 1e-8)
    losses.append(loss.item())
print(losses)
