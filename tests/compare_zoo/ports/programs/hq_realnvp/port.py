# SPDX-License-Identifier: Apache-2.0
"""The density model with log-determinants from Jacobians: per-sample functions, vmap, split couplings."""
import math
import sys
from functools import partial

import torch
from torch.func import jacrev, vmap

torch.set_num_threads(1)

DIM, BLOCKS, ROWS, STEPS = 6, 3, 16, 6
LOG2PI = math.log(2 * math.pi)


def load(path):
    """One dictionary per block. Only the rows and columns that the masks let through are kept apart."""
    sd = torch.load(path)
    blocks = []
    for i in range(BLOCKS):
        pre = [f"layers.{3 * i + j}." for j in range(3)]
        mask = sd[pre[2] + "mask"].bool()
        blk = {"act": torch.stack([sd[pre[0] + "shift"], sd[pre[0] + "log_scale"]]),
               "mat": sd[pre[1] + "weight"].t().contiguous()}
        for net, short in (("scale_net", "s"), ("translate_net", "t")):
            for layer, idx in enumerate((0, 2, 4)):
                w, b = sd[f"{pre[2]}{net}.{idx}.weight"], sd[f"{pre[2]}{net}.{idx}.bias"]
                # weight and bias live in one augmented matrix, inputs are extended by a one
                blk[f"{short}{layer}"] = torch.cat([w, b[:, None]], dim=1)
        blk["amp"] = sd[pre[2] + "rescale"].clone()
        blocks.append((mask, {k: v.clone().requires_grad_() for k, v in blk.items()}))
    return blocks


def affine(w, x):
    return w[:, :-1] @ x + w[:, -1]


def mlp(p, key, x, act):
    return affine(p[key + "2"], act(affine(p[key + "1"], act(affine(p[key + "0"], x)))))


def coupling(free, fixed, p, y):
    """y (DIM,) -> y', with the moving half replaced."""
    ctx = torch.zeros_like(y).index_copy(0, fixed, y[fixed])
    s = (p["amp"] * torch.tanh(mlp(p, "s", ctx, torch.tanh)))[free]
    t = mlp(p, "t", ctx, torch.relu)[free]
    return y.index_copy(0, free, torch.addcmul(t, y[free], s.exp())), s


def block_map(free, fixed, p, x):
    y = ((x + p["act"][0]) * p["act"][1].exp()) @ p["mat"]
    out, _ = coupling(free, fixed, p, y)
    return out, out                      # value carried along as the auxiliary output


def nll(blocks, x):
    total = torch.zeros(len(x))
    for mask, p in blocks:
        free, fixed = torch.where(~mask)[0], torch.where(mask)[0]
        jac, x = vmap(jacrev(partial(block_map, free, fixed, p), has_aux=True))(x)
        # the determinant of the whole block at once, by its LU factors
        lu, _ = torch.linalg.lu_factor(jac)
        total = total + lu.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
    return -(total - 0.5 * x.square().sum(1) - 0.5 * DIM * LOG2PI)


def dataset():
    rng = torch.Generator().manual_seed(170)
    for _ in range(STEPS):
        a, b, c, d, e, f = torch.randn(ROWS, DIM, generator=rng).unbind(1)
        yield torch.column_stack((a, 0.5 * a.pow(2) + 0.3 * b, c.sin(), 0.5 * c + d, 0.7 * e, 0.5 * f - a))


blocks = load(sys.argv[1])
leaves = [v for _, p in blocks for v in p.values()]
first, second = [torch.zeros_like(v) for v in leaves], [torch.zeros_like(v) for v in leaves]
losses, volume = [], []
lr = 1e-3
for k, x in enumerate(dataset(), start=1):
    bits = nll(blocks, x).mean() / (DIM * math.log(2))
    grads = torch.autograd.grad(bits, leaves)
    norm = torch.sqrt(sum(g.square().sum() for g in grads))
    factor = min(1.0, 5.0 / (norm.item() + 1e-6))
    with torch.no_grad():
        for w, g, m, v in zip(leaves, grads, first, second):
            g = factor * g + 1e-4 * w
            m.lerp_(g, 0.1)
            v.lerp_(g * g, 0.001)
            w.addcdiv_(m, v.sqrt().div_(math.sqrt(1 - 0.999 ** k)).add_(1e-8), value=-lr / (1 - 0.9 ** k))
    volume.append([torch.linalg.det(p["mat"].detach()).item() for _, p in blocks])
    lr *= 0.9
    losses.append(bits.item())
print(losses)
