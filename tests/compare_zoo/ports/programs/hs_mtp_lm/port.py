# SPDX-License-Identifier: Apache-2.0
"""All weights are views of one flat vector; complex rotary, grouped queries, padded vocabulary, scaled loss."""
import math
import sys

import torch
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)

V, VPAD, D, NQ, NKV, L, T, K, B, STEPS, FF = 19, 24, 24, 4, 2, 2, 12, 3, 4, 6, 40
E, G = D // NQ, NQ // NKV
SCALE = 1024.0

SHAPES = {"wte": (VPAD, D), "mtp": (K, D, D), "final": (D,)}
for i in range(L):
    SHAPES |= {f"h{i}.qkv": (D, NKV, G + 2, E), f"h{i}.o": (NKV, G, E, D), f"h{i}.n": (2, D),
               f"h{i}.ffn": (2, D, FF), f"h{i}.down": (FF, D)}


def views(flat):
    sizes = [math.prod(s) for s in SHAPES.values()]
    return {n: part.view(s) for (n, s), part in zip(SHAPES.items(), flat.split(sizes))}


def interleave(w, heads):
    """Rows of a half-split rotary projection to neighbouring (real, imaginary) pairs."""
    return w.view(heads, 2, E // 2, D).transpose(1, 2).reshape(heads, E, D)


def load(path):
    sd = torch.load(path)
    flat = torch.zeros(sum(math.prod(s) for s in SHAPES.values()))
    p = views(flat)
    p["wte"][:V] = sd["embedding.weight"]
    p["mtp"].copy_(torch.stack([sd[f"future.{k}.weight"].T for k in range(K)]))
    p["final"].copy_(sd["norm.weight"])
    for i in range(L):
        at = f"blocks.{i}."
        q = interleave(sd[at + "attention.q_proj.weight"], NQ).view(NKV, G, E, D)
        k = interleave(sd[at + "attention.k_proj.weight"], NKV)[:, None]
        v = sd[at + "attention.v_proj.weight"].view(NKV, 1, E, D)
        p[f"h{i}.qkv"].copy_(torch.cat([q, k, v], 1).permute(3, 0, 1, 2))
        p[f"h{i}.o"].copy_(sd[at + "attention.o_proj.weight"].T.view(NKV, G, E, D))
        p[f"h{i}.n"].copy_(torch.stack([sd[at + "norm1.weight"], sd[at + "norm2.weight"]]))
        p[f"h{i}.ffn"].copy_(torch.stack([sd[at + "gate.weight"].T, sd[at + "up.weight"].T]))
        p[f"h{i}.down"].copy_(sd[at + "down.weight"].T)
    return flat.requires_grad_()


PHASE = torch.polar(torch.ones(T, E // 2), torch.outer(torch.arange(T), 1e4 ** (-torch.arange(0, E, 2) / E)))
FUTURE_MASK = torch.ones(T, T, dtype=torch.bool).triu(1)


def spin(x):                                              # (b, t, kv, g, e)
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * PHASE[:, None, None]).flatten(-2)


def norm(x, w):
    return torch.nn.functional.rms_norm(x, (D,), w, 1e-6)


def layer(x, n, qkv, o, ffn, down):
    a = torch.einsum("btd,dkge->btkge", norm(x, n[0]), qkv)
    q, k, v = spin(a[..., :G, :]), spin(a[..., G:G + 1, :])[..., 0, :], a[..., G + 1, :]
    score = torch.einsum("bqkge,bske->bkgqs", q, k) / math.sqrt(E)
    score = score.masked_fill(FUTURE_MASK, -torch.inf).softmax(-1)
    x = x + torch.einsum("bkgqs,bske,kged->bqd", score, v, o)
    g, u = torch.einsum("btd,cdf->cbtf", norm(x, n[1]), ffn)
    return x + (g * g.sigmoid() * u) @ down


def batch_loss(flat, ids):
    p = views(flat)
    x = p["wte"][ids]
    for i in range(L):
        x = checkpoint(layer, x, *(p[f"h{i}.{n}"] for n in ("n", "qkv", "o", "ffn", "down")), use_reentrant=False)
    x = norm(x, p["final"])
    heads = x + torch.einsum("btd,kde->kbte", x, p["mtp"])
    logits = (heads @ p["wte"].T)[..., :V]
    lse = logits.logsumexp(-1)
    total = 0
    for k in range(1, K + 1):
        right = logits[k - 1, :, :-k].gather(-1, ids[:, k:, None])[..., 0]
        z = lse[k - 1, :, :-k]
        total = total + 0.5 ** (k - 1) * (z - right + 1e-3 * z * z).mean()
    return total


flat = load(sys.argv[1])
m, s = torch.zeros_like(flat), torch.zeros_like(flat)
rng = torch.Generator().manual_seed(12)
stream = torch.randint(0, V, (300,), generator=rng)
stream = torch.where(torch.arange(300) % 2 == 0, stream % 5, stream)
rates = [1e-3, 2.5e-3] + [4e-4 + 1.8e-3 * (1 + math.cos(math.pi * j / 4)) for j in range(STEPS - 2)]
losses = []
for n, lr in enumerate(rates, 1):
    begin = torch.randint(0, len(stream) - T, (B,), generator=rng)
    loss = batch_loss(flat, stream[begin[:, None] + torch.arange(T)])
    grad, = torch.autograd.grad(loss * SCALE, flat)
    with torch.no_grad():
        grad = grad / SCALE
        grad *= (1 / (grad.norm() + 1e-6)).clamp(max=1)
        m.lerp_(grad, 0.1)
        s.mul_(0.95).addcmul_(grad, grad, value=0.05)
        flat.mul_(1 - 0.1 * lr).addcdiv_(m / (1 - 0.9 ** n), (s / (1 - 0.95 ** n)).sqrt() + 1e-8, value=-lr)
    losses.append(loss.item())

print(losses)
