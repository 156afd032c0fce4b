# SPDX-License-Identifier: Apache-2.0
"""Affine coupling flow: halves are gathered by index instead of masked, both nets in one matmul."""

import sys

import torch

D = 6
HALF = [torch.arange(0, D, 2), torch.arange(1, D, 2)]


def unpack(sd):
    """Only the rows and columns that the masks let through are kept."""
    layers = []
    for k in range(4):
        fixed, moved = HALF[1 - k % 2], HALF[k % 2]  # <- mask_parity
        a, c = f"flows.{2 * k}.", f"flows.{2 * k + 1}."
        layer = {
            "gain": sd[a + "log_scale"],
            "shift": sd[a + "bias"],
            "w1": torch.stack([sd[c + n + ".0.weight"][:, fixed].T for n in "st"]),
            "b1": torch.stack([sd[c + n + ".0.bias"][None] for n in "st"]),
            "w2": torch.stack([sd[c + n + ".2.weight"][moved].T for n in "st"]),
            "b2": torch.stack([sd[c + n + ".2.bias"][moved][None] for n in "st"]),
            "amp": sd[c + "rescale"][moved],
        }
        layer = {n: v.clone().requires_grad_() for n, v in layer.items()}
        layers.append((fixed, moved, layer))
    return layers


def couple(x, fixed, moved, q):
    a, b = x[:, fixed], x[:, moved]  # <- mask_parity
    h = a @ q["w1"] + q["b1"]
    h = torch.maximum(h, 0.01 * h)
    log_s, t = (h @ q["w2"] + q["b2"]).unbind(0)
    log_s = q["amp"] * log_s.tanh()  # <- scale_bound
    b = b * log_s.exp() + t  # <- coupling_order
    out = torch.empty_like(x).index_copy(1, fixed, a).index_copy(1, moved, b)
    return out, log_s.sum(-1)


def log_density(x, layers):
    volume = x.new_zeros(len(x))
    for fixed, moved, q in layers:
        x = q["gain"].exp() * (x + q["shift"])
        volume = volume + q["gain"].sum()  # <- actnorm_logdet
        x, vol = couple(x, fixed, moved, q)
        volume = volume + vol  # <- actnorm_logdet
    normal = torch.distributions.Normal(0.0, 1.0)
    return normal.log_prob(x).sum(-1) + volume


def nesterov(params, grads, bufs, lr=0.02, mu=0.8):
    with torch.no_grad():
        for i, (p, g) in enumerate(zip(params, grads)):
            g = g.clamp(-0.5, 0.5)
            bufs[i] = g if bufs[i] is None else mu * bufs[i] + g
            p -= lr * (g + mu * bufs[i])  # <- lookahead


layers = unpack(torch.load(sys.argv[1], weights_only=True))
params = [v for _, _, q in layers for v in q.values()]
bufs = [None] * len(params)

rng = torch.Generator().manual_seed(23)
side = torch.randint(0, 2, (4, 32, 1), generator=rng) * 2.0 - 1.0
points = side * 1.5 + 0.6 * torch.randn(4, 32, D, generator=rng)

losses = []
for x in points:
    loss = -log_density(x, layers).mean()
    nesterov(params, torch.autograd.grad(loss, params), bufs)
    losses.append(loss.item())
print(losses)
