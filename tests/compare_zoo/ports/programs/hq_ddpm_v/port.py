# SPDX-License-Identifier: Apache-2.0
"""Diffusion with velocity targets: channels-last, micro-batches, foreach AdamW, foreach EMA."""
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

STEPS, BATCH, MICRO, LEVELS = 5, 8, 2, 50


class Film(nn.Module):
    """Residual unit with separate linear maps for gain and offset."""

    def __init__(self, i, o, e):
        super().__init__()
        self.n_in, self.n_out = nn.GroupNorm(4, i), nn.GroupNorm(4, o, affine=True)
        self.c_in, self.c_out = nn.Conv2d(i, o, 3, padding="same"), nn.Conv2d(o, o, 3, padding="same")
        self.gain, self.offset = nn.Linear(e, o), nn.Linear(e, o)
        self.short = nn.Linear(i, o) if i != o else None

    def forward(self, x, act_e):
        h = self.c_in(F.silu(self.n_in(x)))
        h = self.n_out(h)
        g, o = self.gain(act_e), self.offset(act_e)
        h = torch.addcmul(o[..., None, None], h, (g + 1)[..., None, None])
        y = self.c_out(h * torch.sigmoid(h))
        if self.short is not None:
            x = self.short(x.movedim(1, -1)).movedim(-1, 1)
        return y + x


class Mix(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads, self.pre = heads, nn.GroupNorm(4, c)
        self.q, self.k, self.v, self.o = (nn.Linear(c, c) for _ in range(4))

    def forward(self, x):
        n, c, h, w = x.shape
        tok = self.pre(x).flatten(2).mT
        q, k, v = (f(tok).view(n, h * w, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.o(y).mT.reshape(n, c, h, w)


class Denoiser(nn.Module):
    def __init__(self, c=8, e=16):
        super().__init__()
        # the embedding of every level is a constant table, looked up instead of recomputed
        f = 10000.0 ** (-torch.arange(c // 2).float() / (c // 2))
        ang = torch.arange(LEVELS).float().outer(f)
        self.register_buffer("table", torch.cat([ang.sin(), ang.cos()], 1), persistent=False)
        self.t1, self.t2 = nn.Linear(c, e), nn.Linear(e, e)
        self.enter, self.shrink = nn.Conv2d(1, c, 3, padding=1), nn.Conv2d(c, 2 * c, 3, 2, 1)
        self.hi, self.lo, self.mix, self.merge = Film(c, c, e), Film(2 * c, 2 * c, e), Mix(2 * c, 2), Film(3 * c, c, e)
        self.n_exit, self.exit = nn.GroupNorm(4, c), nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x, level):
        e = F.silu(self.t2(F.silu(self.t1(self.table[level]))))
        fine = self.hi(self.enter(x), e)
        coarse = self.mix(self.lo(self.shrink(fine), e))
        coarse = coarse.repeat_interleave(2, 2).repeat_interleave(2, 3)
        return self.exit(F.silu(self.n_exit(self.merge(torch.cat((coarse, fine), 1), e))))


def translate(sd):
    out = {}
    put = lambda dst, w, b: out.update({dst + ".weight": w, dst + ".bias": b})
    copy = lambda dst, src: put(dst, sd[src + ".weight"], sd[src + ".bias"])

    for d, s in {"t1": "time.0", "t2": "time.2", "enter": "stem", "shrink": "pool", "n_exit": "out.0", "exit": "out.2",
                 "mix.pre": "attn.norm"}.items():
        copy(d, s)
    for d, s in {"hi": "down", "lo": "mid", "merge": "up"}.items():
        for a, b in {"n_in": "norm1", "n_out": "norm2", "c_in": "conv1", "c_out": "conv2"}.items():
            copy(f"{d}.{a}", f"{s}.{b}")
        (gw, ow), (gb, ob) = sd[s + ".emb.weight"].chunk(2), sd[s + ".emb.bias"].chunk(2)
        put(d + ".gain", gw, gb), put(d + ".offset", ow, ob)
    put("merge.short", sd["up.skip.weight"][:, :, 0, 0], sd["up.skip.bias"])
    w, b = sd["attn.qkv.weight"].view(2, 3, 8, 16), sd["attn.qkv.bias"].view(2, 3, 8)   # (head, qkv, d)
    for j, n in enumerate("qkv"):
        put("mix." + n, w[:, j].reshape(16, 16), b[:, j].reshape(16))
    put("mix.o", sd["attn.proj.weight"].squeeze(-1), sd["attn.proj.bias"])
    return out


def schedule():
    f = torch.cos((torch.arange(LEVELS + 1).double() / LEVELS + 0.008) * (math.pi / 2.016)).square()
    return (f[1:] / f[:-1]).clamp(min=0.001).log().cumsum(0).exp().float()


net = Denoiser()
net.load_state_dict(translate(torch.load(sys.argv[1])))
net = net.to(memory_format=torch.channels_last)
weights = list(net.parameters())
shadow = [w.detach().clone() for w in weights]
m, v = [torch.zeros_like(w) for w in weights], [torch.zeros_like(w) for w in weights]
keep, rng = schedule(), torch.Generator().manual_seed(21)
batches = [(torch.randn(BATCH, 1, 8, 8, generator=rng).clamp_(-1, 1), torch.randint(0, LEVELS, (BATCH,), generator=rng),
            torch.randn(BATCH, 1, 8, 8, generator=rng)) for _ in range(STEPS)]

losses, probe = [], []
for it, (img, lev, eps) in enumerate(batches, 1):
    total = 0.0
    for idx in torch.arange(BATCH).split(MICRO):
        a, x, e = keep[lev[idx]].view(-1, 1, 1, 1), img[idx], eps[idx]
        noisy = a.sqrt() * x + (1 - a).sqrt() * e
        part = (net(noisy, lev[idx]) - (a.sqrt() * e - (1 - a).sqrt() * x)).square().sum() / img.numel()
        part.backward()
        total += part.item()
    lr = 1e-3 * min(1.0, it / 3)
    with torch.no_grad():
        g = [w.grad for w in weights]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(g)))
        torch._foreach_mul_(g, torch.clamp(1.0 / (norm + 1e-6), max=1.0))
        torch._foreach_lerp_(m, g, 0.1)
        torch._foreach_mul_(v, 0.999)
        torch._foreach_addcmul_(v, g, g, 0.001)
        for w, mi, vi in zip(weights, m, v):
            w -= lr * (0.02 * w + (mi / (1 - 0.9 ** it)) / ((vi / (1 - 0.999 ** it)).sqrt() + 1e-8))
        torch._foreach_lerp_(shadow, weights, 1 - min(0.99, it / (9 + it)))
        probe.append(float(torch.func.functional_call(
            net, dict(zip([n for n, _ in net.named_parameters()], shadow)), (img, lev)).std()))
    net.zero_grad(set_to_none=True)
    losses.append(total)
print(losses)
