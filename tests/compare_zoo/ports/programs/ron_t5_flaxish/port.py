# SPDX-License-Identifier: Apache-2.0
"""T5 v1.1 as pure functions over a dictionary of kernels (inputs first, as in Flax), with a hand-written Adafactor."""
import math
import re
import sys

import torch
from torch.nn.functional import gelu, one_hot

torch.set_num_threads(1)

HEADS, D_MODEL, N_BUCKETS, MAX_DIST, LAYERS = 4, 24, 8, 12, 2


def restore(path):
    """HF names to short names; every linear weight is turned round to (in, out)."""
    tree = {}
    for key, w in torch.load(path).items():
        if key in ("lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
            continue
        key = key.removesuffix(".weight").replace("encoder", "enc").replace("decoder", "dec")
        key = re.sub(r"block\.(\d+)\.layer\.\d\.", r"\1.", key)
        key = re.sub(r"(SelfAttention|EncDecAttention|DenseReluDense)\.", lambda m: {"S": "self_", "E": "cross_", "D": "mlp_"}[m[1][0]], key)
        tree[key] = w
    return tree


def restore_norms(path, tree):
    """The norms lost their layer number above; read them again by place."""
    raw = torch.load(path)
    for side, slots in (("encoder", ("self", "mlp")), ("decoder", ("self", "cross", "mlp"))):
        for i in range(LAYERS):
            for n, slot in enumerate(slots):
                tree[f"{side[:3]}.{i}.{slot}_norm"] = raw[f"{side}.block.{i}.layer.{n}.layer_norm.weight"]
            tree.pop(f"{side[:3]}.{i}.layer_norm")
    kernels = re.compile(r"(self|cross|mlp)_(q|k|v|o|wi_0|wi_1|wo)$")
    return {k: (w.t() if kernels.search(k) else w).clone().requires_grad_() for k, w in tree.items()}


def rms(x, scale):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6) * scale


def bucket(rel, bidirectional):
    n, base = N_BUCKETS, torch.zeros_like(rel)
    if bidirectional:
        n, base = n // 2, (rel > 0).long() * (n // 2)
        rel = rel.abs()
    else:
        rel = (-rel).clamp(min=0)  # <- buckets
    exact = n // 2
    far = exact + (torch.log(rel.clamp(min=1).float() / exact) / math.log(MAX_DIST / exact) * (n - exact)).long()
    return base + torch.where(rel < exact, rel, far.clamp(max=n - 1))


def bias(table, length, bidirectional):
    pos = torch.arange(length)
    ids = bucket(pos[None, :] - pos[:, None], bidirectional)  # <- buckets
    return torch.einsum("qkn,nh->hqk", one_hot(ids, N_BUCKETS).float(), table)


def attend(p, name, x, memory, add):
    def split(y):
        return y.unflatten(-1, (HEADS, -1))

    q, k, v = split(x @ p[name + "_q"]), split(memory @ p[name + "_k"]), split(memory @ p[name + "_v"])
    w = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) + add, -1)  # <- cross_mask
    return torch.einsum("bhqk,bkhd->bqhd", w, v).flatten(-2) @ p[name + "_o"]


def mlp(p, name, x):
    return (gelu(x @ p[name + "_wi_0"], approximate="tanh") * (x @ p[name + "_wi_1"])) @ p[name + "_wo"]


def apply(p, src, tgt_in):
    low = torch.finfo(torch.float32).min
    pad = torch.where(src[:, None, None, :] != 0, 0.0, low)
    x, rel = p["shared"][src], bias(p["enc.0.self_relative_attention_bias"], src.shape[1], True)
    for i in range(LAYERS):
        n = f"enc.{i}."
        h = rms(x, p[n + "self_norm"])
        x = x + attend(p, n + "self", h, h, rel + pad)
        x = x + mlp(p, n + "mlp", rms(x, p[n + "mlp_norm"]))
    memory = rms(x, p["enc.final_layer_norm"])

    t = tgt_in.shape[1]
    causal = torch.full((t, t), low).triu(1)
    y, rel = p["shared"][tgt_in], bias(p["dec.0.self_relative_attention_bias"], t, False)  # <- buckets
    for i in range(LAYERS):
        n = f"dec.{i}."
        h = rms(y, p[n + "self_norm"])
        y = y + attend(p, n + "self", h, h, rel + causal)
        y = y + attend(p, n + "cross", rms(y, p[n + "cross_norm"]), memory, add=pad)  # <- cross_mask
        y = y + mlp(p, n + "mlp", rms(y, p[n + "mlp_norm"]))
    y = rms(y, p["dec.final_layer_norm"]) * D_MODEL**-0.5
    return y @ p["shared"].t()  # <- tied_head


def adafactor(p, grads, slots, count, lr):
    beta2 = 1.0 - count**-0.8  # <- beta2_step
    for k, g in grads.items():
        g2 = g.square() + 1e-30
        if g.dim() == 2:
            row, col = slots.setdefault(k, (torch.zeros(g.shape[0]), torch.zeros(g.shape[1])))
            row.lerp_(g2.mean(1), 1 - beta2)  # <- beta2_step
            col.lerp_(g2.mean(0), 1 - beta2)  # <- beta2_step
            u = g * torch.outer((row / row.mean()).rsqrt(), col.rsqrt())
        else:
            (v,) = slots.setdefault(k, (torch.zeros_like(g),))
            u = g * v.lerp_(g2, 1 - beta2).rsqrt()
        u = u / u.square().mean().sqrt().clamp(min=1.0)
        p[k].data -= lr * p[k].data.square().mean().sqrt().clamp(min=1e-3) * u


def batch(g):
    src = torch.randint(2, 48, (4, 12), generator=g)
    lens = torch.randint(4, 13, (4,), generator=g)
    src = src * (torch.arange(12) < lens[:, None])
    tgt = torch.zeros(4, 9, dtype=torch.long)
    for row, out, n in zip(src, tgt, lens.tolist()):
        words = row[:n].flip(0)[:8].tolist() + [1]
        out[: len(words)] = torch.tensor(words)
    return src, tgt


params = restore_norms(sys.argv[1], restore(sys.argv[1]))
gen, slots, losses = torch.Generator().manual_seed(77), {}, []
for count in range(1, 6):
    src, tgt = batch(gen)
    tgt_in = torch.cat([torch.zeros(4, 1, dtype=torch.long), tgt[:, :-1]], 1)
    logits = apply(params, src, tgt_in)  # <- tied_head
    nll = logits.logsumexp(-1) - logits.gather(-1, tgt[..., None])[..., 0]
    weight = (tgt != 0).float()  # <- pad_loss
    loss = (nll * weight).sum() / weight.sum()  # <- pad_loss
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))  # <- tied_head
    adafactor(params, grads, slots, count, lr=0.05)  # <- beta2_step
    losses.append(loss.item())
print(losses)
