# SPDX-License-Identifier: Apache-2.0
"""The same network on fused kernels: each op is an autograd.Function with its own backward."""
import sys

import torch
from torch.autograd import Function


class FusedRMS(Function):
    @staticmethod
    def forward(ctx, x, g):
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, g, r)
        return x * r * g

    @staticmethod
    def backward(ctx, dy):
        x, g, r = ctx.saved_tensors
        n = x * r
        dn = dy * g
        return r * (dn - n * (dn * n).mean(-1, keepdim=True)), (dy * n).sum(0)  # <- rms_reduce


class FusedFFN(Function):
    """y = x + (silu(a) * b) @ down, [a, b] = x_n @ up; recomputes the hidden layer in backward."""

    @staticmethod
    def forward(ctx, x, xn, up, down):
        a, b = (xn @ up).chunk(2, 1)  # <- swapped
        ctx.save_for_backward(xn, up, down)
        return x + (a * a.sigmoid() * b) @ down  # <- swapped

    @staticmethod
    def backward(ctx, dy):
        xn, up, down = ctx.saved_tensors
        a, b = (xn @ up).chunk(2, 1)
        s = a.sigmoid()
        act = a * s
        dhid = dy @ down.T
        dz = torch.cat([dhid * b * (s + act * (1 - s)), dhid * act], 1)
        return dy, dz @ up.T, xn.T @ dz, (act * b).T @ dy


class LinearSmoothedCE(Function):
    """Readout and label-smoothed loss in one; gradients are made during forward."""

    @staticmethod
    def forward(ctx, h, w, y, eps):
        z = h @ w.T
        z = z - z.amax(1, keepdim=True)
        e = z.exp()
        tot = e.sum(1, keepdim=True)
        goal = torch.full_like(z, eps / z.shape[1])  # <- smooth_off
        goal.scatter_add_(1, y[:, None], torch.full_like(z[:, :1], 1 - eps))  # <- smooth_off
        dz = (e / tot - goal) / len(y)
        ctx.save_for_backward(dz @ w, dz.T @ h)
        return (tot.log().squeeze(1) - (goal * z).sum(1)).mean()

    @staticmethod
    def backward(ctx, d):
        dh, dw = ctx.saved_tensors
        return d * dh, d * dw, None, None


class CausalBag(Function):
    @staticmethod
    def forward(ctx, table, ids):
        ctx.ids, ctx.rows = ids, table.shape[0]
        return torch.cumsum(table[ids], 1)

    @staticmethod
    def backward(ctx, dy):
        d = dy.flip(1).cumsum(1).flip(1)  # <- bag_back
        out = d.new_zeros(ctx.rows, d.shape[-1])
        return out.index_add_(0, ctx.ids.flatten(), d.flatten(0, 1)), None


sd = torch.load(sys.argv[1], weights_only=True)
table = sd["embed.weight"].clone().requires_grad_()
gains = ([sd[f"norms.{i}.scale"].clone().requires_grad_() for i in range(3)]
         + [sd["final.scale"].clone().requires_grad_()])
ups = [torch.cat([sd[f"ffns.{i}.w1.weight"], sd[f"ffns.{i}.w3.weight"]])  # <- swapped
       .T.contiguous().requires_grad_() for i in range(3)]  # <- swapped
downs = [sd[f"ffns.{i}.w2.weight"].T.contiguous().requires_grad_() for i in range(3)]
params = [*downs, *ups, *gains, table]
buf = [torch.zeros_like(p) for p in params]

gen = torch.Generator().manual_seed(31)
losses = []
for _ in range(4):
    seq = torch.randint(0, 32, (10, 9), generator=gen)
    x = CausalBag.apply(table, seq[:, :-1]).flatten(0, 1)
    for g, u, d in zip(gains, ups, downs):
        x = FusedFFN.apply(x, FusedRMS.apply(x, g), u, d)
    loss = LinearSmoothedCE.apply(FusedRMS.apply(x, gains[-1]), table, seq[:, 1:].flatten(), 0.1)
    loss.backward()
    with torch.no_grad():
        for p, v in zip(params, buf):                # Nesterov with the velocity carrying the rate
            before = v.clone()  # <- nesterov
            v.mul_(0.8).sub_(p.grad, alpha=0.05)
            p.add_(1.8 * v - 0.8 * before)  # <- nesterov
            p.grad = None
    losses.append(loss.item())

print(losses)
