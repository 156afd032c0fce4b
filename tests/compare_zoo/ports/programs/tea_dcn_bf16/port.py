# SPDX-License-Identifier: Apache-2.0
"""The ranking network with mixed precision by hand: single-precision masters, bfloat16 copies made
for each step, experts as batched products, one table with offsets, explicit gradients.
"""

import sys

import torch

SIZES, E, RANK, EXPERTS, LAYERS, ROWS = torch.tensor([11, 7, 17]), 6, 5, 2, 2, 24
OFFSETS = SIZES.cumsum(0) - SIZES
HALF = torch.bfloat16


def masters(path):
    old = torch.load(path)
    new = {"table": torch.cat([old[f"tables.{i}.weight"] for i in range(3)])}
    for n in range(LAYERS):
        for c in ("v", "c", "u"):
            each = [old[f"cross.{n}.experts.{e}.{c}.weight"].T for e in range(EXPERTS)]
            new[f"{n}.{c}"] = torch.stack(each)
        each = [old[f"cross.{n}.experts.{e}.u.bias"] for e in range(EXPERTS)]
        new[f"{n}.b"] = torch.stack(each)[:, None]
        new[f"{n}.gate"] = old[f"cross.{n}.gate.weight"].T
    for name in ("deep.0", "deep.2", "head"):
        new[f"{name}.w"] = old[f"{name}.weight"].T
        new[f"{name}.b"] = old[f"{name}.bias"]
    return {k: t.clone(memory_format=torch.contiguous_format) for k, t in new.items()}


def copies(params):
    """What a step computes with: half precision but for the table."""
    return {
        k: (t.clone() if k == "table" else t.to(HALF)).requires_grad_() for k, t in params.items()
    }


def cross(w, n, x0, x):
    wide = x.expand(EXPERTS, -1, -1).to(HALF)
    low = torch.bmm(torch.bmm(wide, w[f"{n}.v"]).tanh(), w[f"{n}.c"]).tanh()
    u = torch.baddbmm(w[f"{n}.b"], low, w[f"{n}.u"])
    share = (x.to(HALF) @ w[f"{n}.gate"]).float().softmax(1)  # <- gated
    return x + torch.einsum("be,ebd->bd", share, x0 * u)  # <- crossed gated


def dense(w, name, x):
    return torch.addmm(w[f"{name}.b"], x.to(HALF), w[f"{name}.w"])


def scores(w, ids, counts):
    looked_up = w["table"][ids + OFFSETS].flatten(1)
    x = x0 = torch.hstack((looked_up, (1 + counts).log()))  # <- logged
    for n in range(LAYERS):
        x = cross(w, n, x0, x)
    deep = dense(w, "deep.2", dense(w, "deep.0", x0).relu()).relu()
    return dense(w, "head", torch.hstack((x, deep.float())))[:, 0]


def cross_entropy(z, y):
    z = z.to(torch.float32)  # <- lossy
    return (z.clamp(min=0) - z * y + torch.log1p(torch.exp(-z.abs()))).mean()  # <- lossy


def impressions(rng):
    columns = [torch.randint(0, n, (ROWS,), generator=rng) for n in SIZES.tolist()]
    ids = torch.stack(columns, 1)
    counts = torch.randint(0, 30, (ROWS, 4), generator=rng)
    return ids, counts, (torch.rand(ROWS, generator=rng) > 0.5).float()


params = masters(sys.argv[1])
m, v = ({k: torch.zeros_like(t) for k, t in params.items() if k != "table"} for _ in range(2))
row_sums = torch.zeros(int(SIZES.sum()))
rng = torch.Generator().manual_seed(82)
losses = []
for t in range(1, 5):
    ids, counts, clicked = impressions(rng)
    w = copies(params)
    loss = cross_entropy(scores(w, ids, counts), clicked)
    grads = dict(zip(w, torch.autograd.grad(loss, list(w.values()))))
    g = grads.pop("table")
    row_sums += g.square().sum(1) / E  # <- rowwise
    params["table"] -= 0.05 * g / (row_sums.sqrt() + 1e-3)[:, None]  # <- rowwise
    for k, half in grads.items():
        g = half.float()
        m[k] = 0.9 * m[k] + 0.1 * g
        v[k] = 0.999 * v[k] + 0.001 * g**2
        root = (v[k] / (1 - 0.999**t)).sqrt() + 1e-3
        params[k] -= 0.01 * m[k] / (1 - 0.9**t) / root
    losses.append(loss.item())
