# SPDX-License-Identifier: Apache-2.0
"""Contrastive retrieval, functional: stacked layer tensors, rolled memory bank, masked mining."""

import math
import sys
from typing import NamedTuple

import torch


class Net(NamedTuple):
    stem_w: torch.Tensor
    stem_b: torch.Tensor
    ln: torch.Tensor  # layer, (gain, bias), channel
    up: torch.Tensor  # layer, in + 1, out: the bias is the last row
    down: torch.Tensor
    head_w: torch.Tensor
    head_b: torch.Tensor


def with_bias(sd, name, n=3):
    return torch.stack(
        [torch.cat([sd[name % i + ".weight"].T, sd[name % i + ".bias"][None]]) for i in range(n)]
    )


def build(sd):
    ln = torch.stack(
        [
            torch.stack([sd[f"blocks.{i}.norm.weight"], sd[f"blocks.{i}.norm.bias"]])
            for i in range(3)
        ]
    )
    return Net(
        sd["stem.weight"].T,
        sd["stem.bias"],
        ln,
        with_bias(sd, "blocks.%d.fc1"),
        with_bias(sd, "blocks.%d.fc2"),
        sd["proj.weight"].T,
        sd["proj.bias"],
    )


def dense(x, aug):
    return torch.cat([x, torch.ones_like(x[:, :1])], 1) @ aug


def embed(net, x):
    x = x @ net.stem_w + net.stem_b
    for (gain, bias), up, down in zip(net.ln, net.up, net.down):
        c = x - x.mean(1, True)
        h = c / (c.pow(2).mean(1, True) + 1e-3).sqrt() * gain + bias  # <- pre_norm
        h = dense(h, up)
        h = h * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (h + 0.044715 * h**3))
        x = dense(h, down) + x  # <- pre_norm
    y = x @ net.head_w + net.head_b
    return y / y.square().sum(1, keepdim=True).sqrt()


def info_nce(q, k, bank, tau=0.2):
    positive = torch.einsum("nd,nd->n", q, k) / tau
    negative = torch.einsum("nd,md->nm", q, bank) / tau
    both = torch.logaddexp(positive, negative.logsumexp(1))
    return (both - positive).mean()


def mined_triplets(z, y, margin=0.4):
    gap = z[:, None] - z[None]
    sq = gap.square().sum(-1)
    dist = torch.where(sq > 0, sq, 1.0).sqrt() * (sq > 0)
    same = y[:, None].eq(y[None])
    pairs = same & ~torch.eye(len(y), dtype=torch.bool)  # <- self_pair
    anchor, positive = pairs.nonzero(as_tuple=True)  # <- self_pair
    d_ap = dist[anchor, positive]
    d_neg = dist[anchor]
    other = ~same[anchor]
    harder = other & (d_neg > d_ap[:, None])
    nearest = torch.where(harder, d_neg, math.inf).amin(1)
    farthest = torch.where(other, d_neg, -math.inf).amax(1)
    d_an = torch.where(harder.any(1), nearest, farthest)
    return (d_ap - d_an + margin).clamp_min(0).mean()  # <- self_pair


state = torch.load(sys.argv[1], weights_only=True)
online, slow = (
    build({k[len(p) :]: v for k, v in state.items() if k.startswith(p)}) for p in ("query.", "key.")
)
online = Net(*(t.clone().requires_grad_() for t in online))
bank = state["queue"].clone()
meansq = Net(*(torch.zeros_like(t) for t in online))
rng = torch.Generator().manual_seed(99)
means = torch.randn(3, 7, generator=rng)
classes = torch.arange(6) % 3
losses = []
for step in range(5):
    ids = torch.arange(8) % 3
    views = [(means[ids] + 0.6 * torch.randn(8, 7, generator=rng))[:6] for _ in range(2)]
    slow = Net(*(torch.lerp(o.detach(), s, 0.7) for o, s in zip(online, slow)))  # <- key_momentum
    keys = embed(slow, views[1])  # <- key_momentum
    z = embed(online, views[0])
    loss = info_nce(z, keys, bank) + 0.5 * mined_triplets(z, classes)
    bank = torch.cat([bank[6:], keys])  # <- queue_position
    grads = torch.autograd.grad(loss, online)
    with torch.no_grad():
        for w, g, s in zip(online, grads, meansq):
            s.mul_(0.9).addcmul_(g, g, value=0.1)
            w.addcdiv_(g, s.sqrt().add_(1e-2), value=-0.01)  # <- rms_epsilon
    losses.append(loss.item())
print(losses)
