# SPDX-License-Identifier: Apache-2.0
"""Mixer by einsum, blocks stacked and scanned, per-example losses under vmap; AdamW and Lookahead on one vector."""
import sys
from math import prod

import torch
from torch.func import grad, vmap

torch.set_num_threads(1)
DEPTH, DIM, TOKENS, PATCH = 3, 20, 16, 4
SHAPES = {
    "stem.w": (PATCH, PATCH, 3, DIM), "stem.b": (DIM,),
    "ln.g": (2 * DEPTH + 1, DIM), "ln.b": (2 * DEPTH + 1, DIM),
    "tok.in": (DEPTH, TOKENS, 2 * TOKENS), "tok.in.b": (DEPTH, 2 * TOKENS),
    "tok.out": (DEPTH, 2 * TOKENS, TOKENS), "tok.out.b": (DEPTH, TOKENS),
    "chan.in": (DEPTH, DIM, 3 * DIM), "chan.in.b": (DEPTH, 3 * DIM),
    "chan.out": (DEPTH, 3 * DIM, DIM), "chan.out.b": (DEPTH, DIM),
    "head.w": (DIM, 7), "head.b": (7,),
}


def vector_of(sd):
    over = lambda n: [sd[f"blocks.{i}.{n}"] for i in range(DEPTH)]
    t = {"stem.w": sd["stem.weight"].permute(2, 3, 1, 0), "stem.b": sd["stem.bias"],
         "head.w": sd["head.weight"].t(), "head.b": sd["head.bias"]}
    for short, part in (("g", "weight"), ("b", "bias")):
        t["ln." + short] = torch.stack([*over("norm1." + part), *over("norm2." + part), sd["norm." + part]])
    for ours, theirs in (("tok", "mlp_tokens"), ("chan", "mlp_channels")):
        for side, layer in (("in", "fc1"), ("out", "fc2")):
            t[f"{ours}.{side}"] = torch.stack(over(f"{theirs}.{layer}.weight")).mT
            t[f"{ours}.{side}.b"] = torch.stack(over(f"{theirs}.{layer}.bias"))
    assert all(t[n].shape == s for n, s in SHAPES.items())
    return torch.cat([t[n].reshape(-1) for n in SHAPES])


def unflatten(v):
    parts = v.split([prod(s) for s in SHAPES.values()])
    return {n: p.view(s) for (n, s), p in zip(SHAPES.items(), parts)}


def layer_norm(x, g, b):
    mu = x.mean(-1, keepdim=True)
    return (x - mu) * ((x * x).mean(-1, keepdim=True) - mu * mu + 1e-6).rsqrt() * g + b


def gelu(x):
    return 0.5 * x * (1.0 + torch.erf(x * 0.7071067811865476))


def one_image(theta, image, label):
    """The loss of a single image (rows, columns, channels) — no batch axis anywhere."""
    p = unflatten(theta)
    grid = image.unflatten(0, (4, PATCH)).unflatten(2, (4, PATCH))         # gh, ph, gw, pw, c
    x = torch.einsum("apbqc,pqcd->abd", grid, p["stem.w"]).flatten(0, 1) + p["stem.b"]
    for i in range(DEPTH):
        y = layer_norm(x, p["ln.g"][i], p["ln.b"][i])
        y = gelu(torch.einsum("td,th->dh", y, p["tok.in"][i]) + p["tok.in.b"][i])
        x = x + torch.einsum("dh,ht->td", y, p["tok.out"][i]) + p["tok.out.b"][i][:, None]
        y = layer_norm(x, p["ln.g"][DEPTH + i], p["ln.b"][DEPTH + i])
        x = x + gelu(y @ p["chan.in"][i] + p["chan.in.b"][i]) @ p["chan.out"][i] + p["chan.out.b"][i]
    out = layer_norm(x, p["ln.g"][-1], p["ln.b"][-1]).mean(0) @ p["head.w"] + p["head.b"]
    return (out.logsumexp(0) - (out * torch.nn.functional.one_hot(label, 7)).sum())


def mean_loss(theta, images, labels):
    each = vmap(one_image, in_dims=(None, 0, 0))(theta, images, labels)
    return each.mean(), each


def augmented(seed, steps):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        raw = torch.rand(10, 3, 16, 16, generator=gen)
        y = torch.randint(0, 7, (10,), generator=gen)
        coin = torch.rand(10, generator=gen)
        x = torch.where((coin < 0.5)[:, None, None, None], raw.flip(3), raw)
        yield x.sub(0.5).mul(4.0).movedim(1, -1), y


fast = vector_of(torch.load(sys.argv[1]))
anchor = fast.clone()
m = v = torch.zeros_like(fast)
losses, spread, drift = [], [], []
for t, (x, y) in enumerate(augmented(72, 6), 1):
    lr = 4e-3 * (1.0 if t <= 3 else 0.3 if t <= 5 else 0.09)
    g, each = grad(mean_loss, has_aux=True)(fast, x, y)
    m = m + 0.1 * (g - m)
    v = v + 0.01 * (g * g - v)
    step = m / (1 - 0.9 ** t) / ((v / (1 - 0.99 ** t)).sqrt() + 1e-6)
    fast = fast - lr * (step + 0.05 * fast)
    if t % 2 == 0:
        drift.append((fast - anchor).norm().item())
        fast = anchor = 0.5 * (anchor + fast)
    losses.append(each.mean().item())
    spread.append(each.std().item())
print(losses)
