# SPDX-License-Identifier: Apache-2.0
"""Alternating two-player game as one loop over turns; plain tensors and a hand-written Adam."""
import math
import sys
from itertools import cycle, islice

import torch
from torch.nn.functional import softplus


def unpack(sd, prefix):
    """[(in+1, out)] matrices with the bias as the last row."""
    idx = sorted({int(k.split(".")[1]) for k in sd if k.startswith(prefix + ".")})
    return [torch.cat([sd[f"{prefix}.{i}.weight"].T, sd[f"{prefix}.{i}.bias"][None]])
            .requires_grad_() for i in idx]


def run(mats, x, act):
    for i, w in enumerate(mats):
        x = torch.cat([x, x.new_ones(len(x), 1)], 1) @ w
        if i + 1 < len(mats):
            x = act(x)
    return x


def swish(a):
    return a * torch.sigmoid(a)


def leaky(a):
    return torch.maximum(a, 0.2 * a)  # <- leaky_slope


sd = torch.load(sys.argv[1], weights_only=True)
players = {
    "critic": dict(w=unpack(sd, "D"), lr=2e-3),
    "artist": dict(w=unpack(sd, "G"), lr=1e-3),
}
for p in players.values():
    p["mom"] = [torch.zeros_like(t) for t in p["w"]]
    p["sq"] = [torch.zeros_like(t) for t in p["w"]]
    p["turn"] = 0

paint = lambda z: run(players["artist"]["w"], z, swish)
judge = lambda x: run(players["critic"]["w"], x, leaky).squeeze(1)


def descend(p, grads, b1=0.5, b2=0.99, eps=1e-8):  # <- beta_one
    p["turn"] += 1
    c1, c2 = 1 - b1 ** p["turn"], 1 - b2 ** p["turn"]  # <- beta_one
    with torch.no_grad():
        for w, g, a, s in zip(p["w"], grads, p["mom"], p["sq"]):
            a.lerp_(g, 1 - b1)  # <- beta_one
            s.lerp_(g * g, 1 - b2)
            w.addcdiv_(a, s.sqrt().mul_(1 / math.sqrt(c2)).add_(eps),  # <- beta_one
                       value=-p["lr"] / c1)  # <- beta_one


gen = torch.Generator().manual_seed(5)
losses, n = [], 24
for who in islice(cycle(["critic", "artist"]), 8):
    if who == "critic":
        k = torch.randint(0, 8, (n,), generator=gen).float()
        ring = torch.polar(torch.ones(n), k * (2 * math.pi / 8))  # <- sin_first
        real = torch.view_as_real(ring) + 0.05 * torch.randn(n, 2, generator=gen)  # <- sin_first
        with torch.no_grad():
            fake = paint(torch.randn(n, 6, generator=gen))
        s = judge(torch.cat([fake, real]))  # <- smooth_half
        # -0.9 log sig(s) - 0.1 log sig(-s) = softplus(s) - 0.9 s on the real half
        loss = (softplus(s).sum() - 0.9 * s[n:].sum()) / n  # <- smooth_half
        losses.append(loss.item())
    else:
        s = judge(paint(torch.randn(n, 6, generator=gen)))
        loss = softplus(-s).mean()  # <- saturating
        losses[-1] += loss.item()
    descend(players[who], torch.autograd.grad(loss, players[who]["w"]))

print(losses)
