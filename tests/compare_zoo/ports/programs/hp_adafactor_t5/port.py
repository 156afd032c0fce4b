# SPDX-License-Identifier: Apache-2.0
"""T5 with projections stored as stacked (in, out) banks, three micro-batches a step; Adafactor batched over each bank."""
import sys

import torch

torch.set_num_threads(1)
D, H, C, L = 24, 3, 8, 2
SITES = [f"{side}.{i}.{kind}" for side in ("encoder", "decoder") for i in range(L)
         for kind in (("self_attn",) if side == "encoder" else ("self_attn", "cross_attn"))]
SCALES = ([f"encoder.{i}.ln_{k}" for i in range(L) for k in ("self", "ff")] + ["enc_norm"]
          + [f"decoder.{i}.ln_{k}" for i in range(L) for k in ("self", "cross", "ff")] + ["dec_norm"])
FFN = [f"{side}.{i}" for side in ("encoder", "decoder") for i in range(L)]


def bank(sd):
    """Five arrays of matrices kept (in, out), each as (count, rows, columns), and one array of scale vectors."""
    put = lambda names: torch.stack([sd[n].t() for n in names]).contiguous()
    return {
        "square": put([f"{s}.{m}.weight" for s in SITES for m in "qkvo"]),
        "widen": put([f + ".wi.weight" for f in FFN]),
        "narrow": put([f + ".wo.weight" for f in FFN]),
        "table": put(["shared.weight"]),                                           # 1, D, vocabulary
        "nearness": put([f"{s}.0.self_attn.relative_attention_bias.weight" for s in ("encoder", "decoder")]),
        "scale": torch.stack([sd[n + ".weight"] for n in SCALES]),
    }


def rms(p, name, x):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * p["scale"][SCALES.index(name)]


def attend(p, site, x, source, bias):
    j = 4 * SITES.index(site)
    q, k, v, o = p["square"][j:j + 4]
    # fold query and key into one bilinear form per head, value and output likewise
    scores = torch.einsum("bid,dhc,bjhc->bhij", x, q.view(D, H, C), (source @ k).unflatten(-1, (H, C)))
    weight = torch.softmax(scores if bias is None else scores + bias, -1)
    return torch.einsum("bhij,bjhc,hce->bie", weight, (source @ v).unflatten(-1, (H, C)), o.view(H, C, D))


def feed(p, at, x):
    j = FFN.index(at)
    return torch.relu(x @ p["widen"][j]) @ p["narrow"][j]


def tables(n, decoder):
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    if decoder:
        return torch.where(i >= j, torch.clamp(i - j, max=7), 0), i < j
    near = torch.clamp((i - j).abs(), max=3)
    return torch.where(j > i, near + 4, near), None


def stack(p, side, ids, memory=None):
    x = p["table"][0].t()[ids]
    bucket, hidden = tables(ids.shape[1], side == "decoder")
    bias = p["nearness"][int(side == "decoder")][:, bucket]
    if hidden is not None:
        bias = bias.masked_fill(hidden, float("-inf"))
    for i in range(L):
        at = f"{side}.{i}"
        y = rms(p, at + ".ln_self", x)
        x = x + attend(p, at + ".self_attn", y, y, bias)
        if memory is not None:
            x = x + attend(p, at + ".cross_attn", rms(p, at + ".ln_cross", x), memory, None)
        x = x + feed(p, at, rms(p, at + ".ln_ff", x))
    return rms(p, side[:3] + "_norm", x)


def loss_of(p, src, labels):
    given = torch.roll(labels, 1, dims=1).index_fill(1, torch.tensor([0]), 0)
    out = stack(p, "decoder", given, stack(p, "encoder", src))
    logp = torch.log_softmax(out @ p["table"][0] / D ** 0.5, -1)
    return -torch.take_along_dim(logp, labels[..., None], -1).mean()


def adafactor(p, grads, memory, t, lr=0.01):
    keep = 1 - t ** -0.8
    for n, g in grads.items():
        w, over = p[n], tuple(range(1, g.ndim))
        sq = g.square() + 1e-30
        if n == "scale":
            v = memory[n] = keep * memory.get(n, 0) + (1 - keep) * sq
            u = g / v.sqrt()
        else:
            a, b = memory.get(n, (0, 0))
            a = keep * a + (1 - keep) * sq.mean(2, keepdim=True)
            b = keep * b + (1 - keep) * sq.mean(1, keepdim=True)
            memory[n] = a, b
            u = g * (a.mean(1, keepdim=True) / (a * b)).sqrt()
        size = lambda x: x.square().mean(over, keepdim=True).sqrt()
        u = u / size(u).clamp(min=1.0)
        p[n] = (w - lr * size(w).clamp(min=1e-3) * u).detach().requires_grad_()


params = {n: w.clone().requires_grad_() for n, w in bank(torch.load(sys.argv[1])).items()}
gen = torch.Generator().manual_seed(102)
moments, losses, sizes = {}, [], []
for t in range(1, 6):
    src, labels = (torch.randint(1, 32, (8, n), generator=gen) for n in (10, 7))
    total, grads = 0.0, {n: torch.zeros_like(w) for n, w in params.items()}
    for a, b in zip(src.split(3), labels.split(3)):                # 3, 3, 2 sequences
        share = len(a) / len(src)
        value = loss_of(params, a, b)
        for n, g in zip(grads, torch.autograd.grad(value * share, list(params.values()))):
            grads[n] += g
        total += value.item() * share
    adafactor(params, grads, moments, t)
    losses.append(total)
    sizes.append({n: w.norm().item() for n, w in params.items()})
print(losses)
