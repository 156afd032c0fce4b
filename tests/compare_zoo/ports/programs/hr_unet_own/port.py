# SPDX-License-Identifier: Apache-2.0
"""Tiny diffusion U-Net as pure functions: one matrix for all time shifts, recomputed blocks, micro-batches of one."""
import math
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)

T_MAX, GROUPS, HEAD = 100, 4, 8
# the residual blocks in the order in which they run, and their output widths
RES = ["down_blocks.0.resnets.0", "down_blocks.1.resnets.0", "mid_block.resnets.0", "mid_block.resnets.1",
       "up_blocks.0.resnets.0", "up_blocks.0.resnets.1", "up_blocks.1.resnets.0", "up_blocks.1.resnets.1"]
WIDTHS = [8, 16, 16, 16, 16, 16, 8, 8]
ATT = ["down_blocks.1.attentions.0", "mid_block.attentions.0", "up_blocks.0.attentions.0", "up_blocks.0.attentions.1"]


def load(path):
    sd, w = torch.load(path), {}

    def take(name, src):
        w[name] = (sd.pop(src + ".weight"), sd.pop(src + ".bias"))

    def fuse(name, srcs):
        w[name] = tuple(torch.cat([sd.pop(f"{s}.{k}") for s in srcs]) for k in ("weight", "bias"))

    fuse("shifts", [r + ".time_emb_proj" for r in RES])
    for i, r in enumerate(RES):
        for k in ("norm1", "conv1", "norm2", "conv2"):
            take(f"r{i}.{k}", f"{r}.{k}")
        if r + ".conv_shortcut.weight" in sd:
            take(f"r{i}.side", r + ".conv_shortcut")
            w[f"r{i}.side"] = (w[f"r{i}.side"][0].flatten(1), w[f"r{i}.side"][1])
    for i, a in enumerate(ATT):
        take(f"a{i}.norm", a + ".group_norm")
        fuse(f"a{i}.qkv", [f"{a}.to_{k}" for k in "qkv"])
        take(f"a{i}.out", a + ".to_out.0")
    for name, src in (("enter", "conv_in"), ("leave_norm", "conv_norm_out"), ("leave", "conv_out"),
                      ("t1", "time_embedding.linear_1"), ("t2", "time_embedding.linear_2"),
                      ("halve", "down_blocks.0.downsamplers.0.conv"), ("double", "up_blocks.0.upsamplers.0.conv")):
        take(name, src)
    assert not sd, list(sd)
    return {k: tuple(t.clone().requires_grad_() for t in pair) for k, pair in w.items()}


_f = torch.exp(torch.arange(4) * (-math.log(10000) / 4)) * torch.arange(T_MAX)[:, None].float()
CLOCK = torch.cat([_f.cos(), _f.sin()], 1)                       # one row per time step
ALPHA_BAR = (1 - torch.linspace(1e-3, 0.05, T_MAX)).cumprod(0)


def norm(x, pair):
    return F.group_norm(x, GROUPS, *pair, eps=1e-5)


def same(x, pair):
    return F.conv2d(F.pad(x, (1, 1, 1, 1)), *pair)


def res(w, i, x, shift):
    y = same(F.silu(norm(x, w[f"r{i}.norm1"])), w[f"r{i}.conv1"]) + shift[:, :, None, None]
    y = same(F.silu(norm(y, w[f"r{i}.norm2"])), w[f"r{i}.conv2"])
    if f"r{i}.side" in w:
        m, b = w[f"r{i}.side"]
        x = torch.einsum("oc,bchw->bohw", m, x) + b[:, None, None]
    return x + y


def att(w, i, x):
    b, c, h, wd = x.shape
    tokens = norm(x, w[f"a{i}.norm"]).flatten(2).mT
    qkv = F.linear(tokens, *w[f"a{i}.qkv"]).unflatten(-1, (3, c // HEAD, HEAD))
    q, k, v = qkv.movedim(2, 0)
    p = (torch.einsum("bqhe,bkhe->bhqk", q, k) / math.sqrt(HEAD)).softmax(-1)
    y = F.linear(torch.einsum("bhqk,bkhe->bqhe", p, v).flatten(2), *w[f"a{i}.out"])
    return x + y.mT.unflatten(2, (h, wd))


def unet(w, x, t):
    emb = F.linear(F.silu(F.linear(CLOCK[t], *w["t1"])), *w["t2"])
    shift = F.linear(F.silu(emb), *w["shifts"]).split(WIDTHS, 1)

    def r(i, *xs):
        return checkpoint(lambda z, s: res(w, i, z, s), torch.cat(xs, 1), shift[i], use_reentrant=False)

    s0 = same(x, w["enter"])
    s1 = r(0, s0)
    s2 = F.conv2d(s1, *w["halve"], stride=2, padding=1)
    s3 = att(w, 0, r(1, s2))
    x = r(3, att(w, 1, r(2, s3)))
    x = att(w, 2, r(4, x, s3))
    x = att(w, 3, r(5, x, s2))
    x = same(x.repeat_interleave(2, 2).repeat_interleave(2, 3), w["double"])
    x = r(7, r(6, x, s1), s0)
    return same(F.silu(norm(x, w["leave_norm"])), w["leave"])


def schedule(k):
    return k / 2 if k < 2 else 0.5 * (1 + math.cos(math.pi * (k - 2) / 6))


w = load(sys.argv[1])
leaves = [t for pair in w.values() for t in pair]
opt = torch.optim.AdamW(leaves, lr=1e-3, weight_decay=1e-2, eps=1e-6, fused=True)
gen = torch.Generator().manual_seed(500)
losses, grad_norms, lrs = [], [], []
for k in range(5):
    clean = torch.rand(4, 2, 8, 8, generator=gen).mul(2).sub(1)
    noise = torch.randn(4, 2, 8, 8, generator=gen)
    t = torch.randint(0, T_MAX, (4,), generator=gen)
    a = ALPHA_BAR[t].view(-1, 1, 1, 1)
    noisy = torch.sqrt(a) * clean + torch.sqrt(1 - a) * noise
    total, sums = 0.0, [torch.zeros_like(p) for p in leaves]
    for i in reversed(range(4)):
        part = (unet(w, noisy[i:i + 1], t[i:i + 1]) - noise[i:i + 1]).square().sum() / noise.numel()
        torch._foreach_add_(sums, torch.autograd.grad(part, leaves))
        total += part.item()
    size = math.sqrt(sum(g.square().sum().item() for g in sums))
    for p, g in zip(leaves, sums):
        p.grad = g * min(1.0, 1.0 / (size + 1e-6))
    lrs.append(1e-3 * schedule(k))
    opt.param_groups[0]["lr"] = lrs[-1]
    opt.step()
    grad_norms.append(size)
    losses.append(total)

print(losses)
