# SPDX-License-Identifier: Apache-2.0
"""Segmentation net with folded-by-hand weight norm, pixel-shuffle upsampling and losses with
own backward."""
import sys

import torch
from torch.utils.checkpoint import checkpoint

src = torch.load(sys.argv[1], weights_only=True)


class SegLoss(torch.autograd.Function):
    """mean BCE + mean soft Dice on the mask logits, 0.4 * weighted BCE on the edge logits; one
    hand backward."""

    @staticmethod
    def forward(ctx, out, mask, edge):
        z, u = out[:, 0].flatten(1), out[:, 1].flatten(1)
        p, q = z.sigmoid(), u.sigmoid()
        b, n = z.shape
        num = 2 * (p * mask).sum(1, keepdim=True) + 1
        den = p.sum(1, keepdim=True) + mask.sum(1, keepdim=True) + 1
        softplus = lambda a: a.clamp_min(0) + torch.log1p(torch.exp(-a.abs()))
        bce = (softplus(z) - mask * z).mean()
        # -[3 t log q + (1-t) log(1-q)]
        ebce = (3 * edge * softplus(-u) + (1 - edge) * softplus(u)).mean()  # <- edge_weight
        gz = (p - mask) / (b * n) + p * (1 - p) * (num / den - 2 * mask) / den / b  # <- dice_slope
        gu = 0.4 * ((1 - edge) * q - 3 * edge * (1 - q)) / (b * n)  # <- edge_weight
        ctx.save_for_backward(torch.stack([gz, gu], 1).view_as(out))  # <- dice_slope
        return bce + 0.4 * ebce + (1 - num / den).mean()

    @staticmethod
    def backward(ctx, up):
        (g,) = ctx.saved_tensors
        return up * g, None, None  # <- dice_slope


def take(name):
    return src[name].clone().requires_grad_()


class WNConv:
    """v/|v| * g, evaluated at call time; bias kept apart."""

    def __init__(self, prefix):
        self.g = take(prefix + ".parametrizations.weight.original0")
        self.v = take(prefix + ".parametrizations.weight.original1")
        self.b = take(prefix + ".bias")

    def __call__(self, x):
        inv = self.v.square().sum((1, 2, 3), keepdim=True).rsqrt()  # <- norm_axis
        a = (torch.nn.functional.conv2d(x, self.v, padding=1)  # <- norm_axis
             * (self.g * inv).view(1, -1, 1, 1))  # <- norm_axis
        a = a + self.b.view(1, -1, 1, 1)
        return a * torch.sigmoid(a)


convs = {k: (WNConv(k + ".0"), WNConv(k + ".2")) for k in ("dec", "down2", "down1")}
c = 6
# transposed conv of kernel=stride=2: a 1x1 map to (c,2,2) channels and a pixel shuffle
up_w = src["up.weight"].permute(1, 2, 3, 0).reshape(4 * c, 2 * c).clone().requires_grad_()
up_b = take("up.bias")
head_w = torch.cat([src["mask_head.weight"], src["edge_head.weight"]]).view(2, c)\
    .clone().requires_grad_()
head_b = torch.cat([src["mask_head.bias"], src["edge_head.bias"]]).requires_grad_()
weights = [head_w, head_b, up_w, up_b] + [
    t for pair in convs.values() for cv in pair for t in (cv.v, cv.b, cv.g)]


def pair(name):
    first, second = convs[name]
    return lambda x: second(first(x))


def decode(skip, low):
    b, _, h, w = low.shape
    x = torch.einsum("oc,bchw->bohw", up_w, low)
    x = torch.pixel_shuffle(x, 2) + up_b.view(1, -1, 1, 1)
    x = pair("dec")(torch.cat([skip, x], 1))
    return torch.einsum("oc,bchw->bohw", head_w, x) + head_b.view(1, 2, 1, 1)


def forward(x):
    skip = checkpoint(pair("down1"), x, use_reentrant=False)
    b, ch, h, w = skip.shape
    small = skip.reshape(b, ch, h // 2, 2, w // 2, 2).permute(0, 1, 2, 4, 3, 5)\
        .flatten(-2).max(-1).values
    low = checkpoint(pair("down2"), small, use_reentrant=False)
    return checkpoint(decode, skip, low, use_reentrant=False)


sq = [torch.zeros_like(w) for w in weights]
mo = [torch.zeros_like(w) for w in weights]
gen = torch.Generator().manual_seed(99)
losses = []
for _ in range(5):
    geo = torch.rand(3, 6, 1, 1, generator=gen)
    noise = torch.randn(6, 1, 12, 12, generator=gen)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    dist = ((yy - geo[1] * 12) ** 2 + (xx - geo[0] * 12) ** 2).sqrt()  # <- axis_swap
    rad = geo[2] * 4
    mask = (dist < rad + 1).float()
    edge = ((dist - rad - 1).abs() < 1).float()
    loss = SegLoss.apply(forward(mask[:, None] + 0.5 * noise), mask.flatten(1), edge.flatten(1))
    grads = torch.autograd.grad(loss, weights)
    for w, g, s, m in zip(weights, grads, sq, mo):
        g = g.clamp(-0.05, 0.05)
        s += 0.1 * (g * g - s)
        m.mul_(0.5).sub_(1e-3 * g / (s.sqrt() + 1e-3))  # <- eps_inside
        w.data.add_(m)
    losses.append(loss.item())
print(losses)
