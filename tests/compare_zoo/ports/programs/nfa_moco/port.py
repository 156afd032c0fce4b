# SPDX-License-Identifier: Apache-2.0
"""Contrastive training with a bank of keys; the bank is a deque of batches, all states explicit."""
import sys
from collections import deque
import torch
from torch.func import grad_and_value

torch.set_num_threads(1)


def load(path):
    sd = torch.load(path, weights_only=True)
    short = {"backbone.0": "a", "backbone.1": "bn", "backbone.3": "b", "projector": "z"}

    def take(prefix):
        return {f"{s}.{t}": sd[f"{prefix}.{l}.{n}"]
                for l, s in short.items() for t, n in (("w", "weight"), ("b", "bias"))}

    stats = (sd["query.backbone.1.running_mean"], sd["query.backbone.1.running_var"])
    return take("query"), take("key"), stats, sd["queue"], (sd["probe.weight"], sd["probe.bias"])


def gelu(x):
    return x * torch.special.ndtr(x)


def features(p, x, stats):
    """stats None: those of the batch. Returns features and the batch moments used."""
    h = x @ p["a.w"].T + p["a.b"]
    mean, var = (h.mean(0), h.var(0, unbiased=False)) if stats is None else stats
    h = (h - mean) / torch.sqrt(var + 1e-5) * p["bn.w"] + p["bn.b"]
    return gelu(gelu(h) @ p["b.w"].T + p["b.b"]), (mean, var)


def embed(p, x):
    h, moments = features(p, x, None)
    z = h @ p["z.w"].T + p["z.b"]
    return z / z.norm(dim=1, keepdim=True), moments


def info_nce(p, x, keys, bank, temp=0.3):
    q, moments = embed(p, x)
    pos = (q * keys).sum(1) / temp
    neg = q @ bank.T / temp  # <- negative_scale
    total = torch.logaddexp(pos, neg.logsumexp(1))
    return (total - pos).mean(), moments


def probe_loss(wb, h, y):
    logp = (h @ wb[0].T + wb[1]).log_softmax(1)
    return -logp[range(len(y)), y].mean()


def sgd(p, g, vel, lr=0.1):
    g = {k: g[k] + (1e-2 * p[k] if k.endswith(".w") and k != "bn.w" else 0) for k in p}  # <- groups
    vel = {k: 0.9 * vel[k] + g[k] for k in g} if vel else g
    return {k: p[k] - lr * vel[k] for k in p}, vel


def adamw(p, g, st, n, lr=1e-2, wd=0.1):
    ms = tuple(0.9 * m + 0.1 * d for m, d in zip(st[0], g))
    vs = tuple(0.999 * v + 0.001 * d * d for v, d in zip(st[1], g))
    step = lambda w, m, v: (
        (1 - lr * wd) * w - lr * (m / (1 - 0.9 ** n)) / ((v / (1 - 0.999 ** n)).sqrt() + 1e-5))
    return tuple(map(step, p, ms, vs)), (ms, vs)


def track(stats, moments, n, rate=0.1):
    return ((1 - rate) * stats[0] + rate * moments[0],
            (1 - rate) * stats[1] + rate * moments[1] * n / (n - 1))  # <- running_biased


query, key, stats, queue, probe = load(sys.argv[1])
bank = deque(queue.split(8), maxlen=3)  # <- queue_side
vel, probe_st = None, ((0.0, 0.0), (0.0, 0.0))
gen = torch.Generator().manual_seed(50)
losses = []
for step in range(1, 6):
    x = torch.randn(8, 8, generator=gen)
    y = sum((x[:, j] > 0).long() for j in (0, 1))
    va, vb = (x + 0.2 * torch.randn(8, 8, generator=gen) for _ in range(2))

    key = {k: 0.9 * key[k] + 0.1 * query[k] for k in key}  # <- keys_stale
    keys, _ = embed(key, vb)  # <- keys_stale
    g, (nce, moments) = grad_and_value(info_nce, has_aux=True)(
        query, va, keys, torch.cat(tuple(bank)))  # <- queue_side
    bank.append(keys)  # <- queue_side
    stats = track(stats, moments, len(va))  # <- running_biased
    query, vel = sgd(query, g, vel)

    h, _ = features(query, x, stats)
    gp, pl = grad_and_value(probe_loss)(probe, h, y)
    probe, probe_st = adamw(probe, gp, probe_st, step)
    losses.append(nce.item() + pl.item())

print(losses)
