# SPDX-License-Identifier: Apache-2.0
"""DeepFM with one table for all fields, square-of-sum trick, a traced loss (aot_eager), SAM
and SGD as pure functions."""
import sys

import numpy as np
import torch

SIZES = np.array([7, 11, 4])
OFFSET = torch.from_numpy(np.concatenate([[0], np.cumsum(SIZES)[:-1]]))
K = 6


def convert(path):
    s = torch.load(path, weights_only=True)
    cat_rows = torch.cat([torch.cat([s[f"embeddings.{i}.weight"], s[f"first_order.{i}.weight"]], 1)
                          for i in range(3)])
    num_rows = torch.cat([s["num_embed"], s["num_linear.weight"].T], 1)
    heads = torch.cat([s["grade.weight"], s["value.weight"], s["click.weight"]])
    return [
        torch.cat([num_rows, cat_rows]),
        s["num_linear.bias"].clone(),
        s["deep.0.weight"].T.reshape(8, K, 16).contiguous(), s["deep.0.bias"].clone(),
        s["deep.2.weight"].T.contiguous(), s["deep.2.bias"].clone(),
        heads.T.contiguous(), torch.cat([s["grade.bias"], s["value.bias"], s["click.bias"]]),
        s["log_var"].flip(0),           # grade, value, click
    ]


def mish(x):
    e = torch.exp(torch.minimum(x, torch.full_like(x, 20.0)))
    n = e * (e + 2)
    return x * n / (n + 2)


def objective(w, onehot, num, click, value, grade):
    table, bias0, w1, b1, w2, b2, wh, bh, logvar = w
    rows = torch.cat([onehot @ table[5:], num[:, :, None] * table[:5]], 1)        # B 8 K+1
    fields, first = rows[..., :K], rows[..., K].sum(1) + bias0
    second = 0.5 * (fields.sum(1).square() - fields.square().sum(1)).sum(1)  # <- fm_half
    h = mish(torch.einsum("bfk,fko->bo", fields, w1) + b1)
    out = mish(h @ w2 + b2) @ wh + bh
    z = out[:, 5] + first + second
    bce = (torch.clamp(z, min=0) - z * click + torch.log1p(torch.exp(-z.abs()))).mean()
    r = (out[:, 4] - value).abs()
    huber = torch.where(r < 0.8, 0.5 * r * r, 0.8 * r - 0.32).mean()  # <- huber_delta
    logp = out[:, :4] - torch.logsumexp(out[:, :4], 1, keepdim=True)
    ce = -(logp * grade).sum(1).mean()
    return ce / logvar[0].exp() + huber / logvar[1].exp() + bce / logvar[2].exp() + logvar.sum() / 2


traced = torch.compile(objective, backend="aot_eager", fullgraph=True)


def value_and_grad(w, *data):
    w = [t.detach().requires_grad_() for t in w]
    out = traced(w, *data)
    return out.item(), torch.autograd.grad(out, w)


def cosine(a, b, f):
    return b + (a - b) * 0.5 * (1 + np.cos(np.pi * f))


rng = torch.Generator().manual_seed(2024)
weights = convert(sys.argv[1])
buf = None
losses = []
for it in range(5):
    cats = [torch.randint(0, int(c), (32,), generator=rng) for c in SIZES]
    num = torch.randn(32, 5, generator=rng)
    click = (torch.rand(32, generator=rng) < 0.3).float()
    value = torch.randn(32, generator=rng).mul(1.5)
    grade = torch.eye(4)[torch.randint(0, 4, (32,), generator=rng)]
    cols = num.numpy().copy()
    cols[:, 0] = np.log1p(np.exp(cols[:, 0]) * 30 + 2) / 3  # <- log_column
    onehot = torch.eye(22)[torch.stack(cats, 1) + OFFSET]                        # B 3 22
    data = (onehot, torch.from_numpy(cols), click, value, grade)
    loss, g = value_and_grad(weights, *data)
    rho = 0.05 / (torch.cat([x.flatten() for x in g]).norm() + 1e-12)  # <- sam_norm
    _, g = value_and_grad([p + rho * x for p, x in zip(weights, g)], *data)  # <- sam_norm
    if it <= 1:
        lr, mu = cosine(0.01, 0.1, it), cosine(0.95, 0.85, it)  # <- momentum_cycle
    else:
        lr, mu = (cosine(0.1, 0.0001, (it - 1) / 3),  # <- momentum_cycle
                  cosine(0.85, 0.95, (it - 1) / 3))  # <- momentum_cycle
    g = [x + 1e-3 * p for x, p in zip(g, weights)]
    buf = g if buf is None else [mu * b + x for b, x in zip(buf, g)]  # <- momentum_cycle
    weights = [p - lr * b for p, b in zip(weights, buf)]
    losses.append(loss)
print(losses)
