# SPDX-License-Identifier: Apache-2.0
"""Llama training as pure functions over a flat dictionary, with micro-batches."""
import sys
from math import cos, pi

import torch

torch.set_num_threads(1)

CFG = dict(vocab=64, width=32, depth=2, q_heads=4, kv_heads=2, ff=48, hd=8)
RUN = dict(seq=16, batch=8, accum=4, steps=5, warmup=2, lr=1e-2, floor=0.1, wd=0.3, clip=0.5)


def to_halves(w, heads):
    """(even, odd) interleaved rotary rows -> first half / second half."""
    return w.reshape(heads, CFG["hd"] // 2, 2, -1).transpose(1, 2).reshape(heads * CFG["hd"], -1)


def import_weights(path):
    raw = torch.load(path)
    out = {"wte": raw["tok_embeddings.weight"], "final_norm": raw["norm.weight"]}
    for i in range(CFG["depth"]):
        get = lambda n: raw[f"layers.{i}.{n}.weight"]
        q, k = get("attention.wq"), get("attention.wk")
        q, k = to_halves(q, CFG["q_heads"]), to_halves(k, CFG["kv_heads"])  # <- rope_layout
        out[f"{i}.attn_norm"] = get("attention_norm")
        out[f"{i}.qkv"] = torch.cat([q, k, get("attention.wv")]).T
        out[f"{i}.out"] = get("attention.wo").T
        out[f"{i}.mlp_norm"] = get("ffn_norm")
        out[f"{i}.gate_up"] = torch.cat([get("feed_forward.w1"), get("feed_forward.w3")]).T
        out[f"{i}.down"] = get("feed_forward.w2").T
    return {n: t.clone().contiguous().requires_grad_() for n, t in out.items()}


def rms(x, gain):
    return gain * (x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5))


def rope_tables(length):
    half = CFG["hd"] // 2
    inv = 10000.0 ** (-torch.arange(half) / half)
    ang = torch.arange(length)[:, None] * inv
    return ang.cos(), ang.sin()


def rotate(x, cos_t, sin_t):
    lo, hi = x.chunk(2, dim=-1)  # <- rope_layout
    return torch.cat([lo * cos_t - hi * sin_t, hi * cos_t + lo * sin_t], dim=-1)  # <- rope_layout


def attend(p, i, x, tables):
    b, t, _ = x.shape
    nq, nk, hd = CFG["q_heads"], CFG["kv_heads"], CFG["hd"]
    qkv = (x @ p[f"{i}.qkv"]).view(b, t, nq + 2 * nk, hd).transpose(1, 2)
    q, k, v = qkv.split([nq, nk, nk], dim=1)
    q, k = rotate(q, *tables), rotate(k, *tables)  # <- rope_layout
    q = q.reshape(b, nk, nq // nk, t, hd)  # <- gqa_tiled
    s = torch.einsum("bkgqd,bksd->bkgqs", q, k) * hd ** -0.5  # <- gqa_tiled
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    a = torch.softmax(s.masked_fill(future, -torch.inf), dim=-1)
    o = torch.einsum("bkgqs,bksd->bkgqd", a, v)  # <- gqa_tiled
    o = o.reshape(b, nq, t, hd)  # <- gqa_tiled
    return o.transpose(1, 2).flatten(2) @ p[f"{i}.out"]


def logits_of(p, tokens):
    x, tables = p["wte"][tokens], rope_tables(tokens.shape[1])
    for i in range(CFG["depth"]):
        x = x + attend(p, i, rms(x, p[f"{i}.attn_norm"]), tables)
        gate, up = (rms(x, p[f"{i}.mlp_norm"]) @ p[f"{i}.gate_up"]).chunk(2, dim=-1)
        x = x + (gate * torch.sigmoid(gate) * up) @ p[f"{i}.down"]
    return rms(x, p["final_norm"]) @ p["wte"].T


def nll_sum(p, tokens, labels):
    logp = torch.log_softmax(logits_of(p, tokens), dim=-1)
    keep = labels != -100
    return -logp[keep].gather(1, labels[keep][:, None]).sum()


def clip(grads, limit):
    norm = torch.sqrt(sum((g * g).sum() for g in grads.values()))  # <- clip_per_tensor
    scale = min(1.0, limit / (norm.item() + 1e-6))
    return {n: g * scale for n, g in grads.items()}  # <- clip_per_tensor


def decays(name):
    return not name.endswith("norm")  # <- decay_on_norms


def adamw(p, grads, mom, t, lr, b1=0.9, b2=0.95, eps=1e-8):
    for n, g in grads.items():
        m, v = mom[n]
        m += (1 - b1) * (g - m)
        v += (1 - b2) * (g * g - v)
        update = (m / (1 - b1 ** t)) / ((v / (1 - b2 ** t)).sqrt() + eps)
        shrink = 1 - lr * RUN["wd"] if decays(n) else 1.0  # <- decay_on_norms
        p[n].data = p[n].data * shrink - lr * update  # <- decay_on_norms


def lr_at(step):
    if step < RUN["warmup"]:
        return RUN["lr"] * (step + 1) / RUN["warmup"]
    x = (step - RUN["warmup"]) / (RUN["steps"] - RUN["warmup"])
    return RUN["lr"] * (RUN["floor"] + (1 - RUN["floor"]) * (1 + cos(pi * x)) / 2)


def batches():
    rng = torch.Generator().manual_seed(1234)
    text = torch.randint(0, CFG["vocab"], (400,), generator=rng)
    for _ in range(RUN["steps"]):
        at = torch.randint(0, 400 - RUN["seq"] - 1, (RUN["batch"],), generator=rng).tolist()
        prompt = torch.randint(0, RUN["seq"] - 2, (RUN["batch"],), generator=rng).tolist()
        xs = torch.stack([text[a:a + RUN["seq"]] for a in at])
        ys = torch.stack([text[a + 1:a + 1 + RUN["seq"]] for a in at])
        for row, n in enumerate(prompt):
            ys[row, :n] = -100
        yield xs, ys


params = import_weights(sys.argv[1])
moments = {n: (torch.zeros_like(w.data), torch.zeros_like(w.data)) for n, w in params.items()}
losses = []
for step, (xs, ys) in enumerate(batches()):
    grads = {n: torch.zeros_like(w.data) for n, w in params.items()}
    total, seen = (ys != -100).sum(), 0.0  # <- micro_mean
    for x, y in zip(xs.chunk(RUN["accum"]), ys.chunk(RUN["accum"])):
        part = nll_sum(params, x, y) / total  # <- micro_mean
        for n, g in zip(params, torch.autograd.grad(part, list(params.values()))):
            grads[n] += g
        seen += part.item()  # <- micro_mean
    grads = clip(grads, RUN["clip"])  # <- clip_per_tensor
    adamw(params, grads, moments, step + 1, lr_at(step))  # <- decay_on_norms
    losses.append(seen)
print(losses)
