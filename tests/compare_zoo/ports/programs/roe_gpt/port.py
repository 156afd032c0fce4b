# SPDX-License-Identifier: Apache-2.0
"""The small GPT as pure functions over a flat dict of arrays, with its own AdamW: the way a JAX user writes it."""
import math
import sys

import torch

torch.set_num_threads(1)

HEADS, DEPTH, STEPS = 4, 2, 5
PEAK, FLOOR, WARMUP, HORIZON = 1e-2, 1e-3, 3, 10
B1, B2, EPS, DECAY, MAX_NORM = 0.9, 0.95, 1e-8, 0.5, 0.5


def load(path):
    """torch's (out, in) matrices become (in, out); the joint qkv becomes (3, head, in, head_dim)."""
    sd = torch.load(path)
    p = {"tok.w": sd["wte.weight"], "pos.w": sd["wpe.weight"], "out.scale": sd["ln_f.weight"], "out.shift": sd["ln_f.bias"]}
    for n in range(DEPTH):
        src, dst = f"h.{n}.", f"block{n}/"
        width = sd[src + "attn.c_attn.weight"].shape[1]
        dim = width // HEADS
        p[dst + "qkv.w"] = sd[src + "attn.c_attn.weight"].view(3, HEADS, dim, width).permute(0, 1, 3, 2)
        p[dst + "qkv.b"] = sd[src + "attn.c_attn.bias"].view(3, HEADS, 1, dim)
        p[dst + "mix.w"] = sd[src + "attn.c_proj.weight"].T.reshape(HEADS, dim, width)
        p[dst + "mix.b"] = sd[src + "attn.c_proj.bias"]
        p[dst + "up.w"], p[dst + "up.b"] = sd[src + "c_fc.weight"].T, sd[src + "c_fc.bias"]
        p[dst + "down.w"], p[dst + "down.b"] = sd[src + "c_proj.weight"].T, sd[src + "c_proj.bias"]
        for k in (1, 2):
            p[dst + f"n{k}.scale"], p[dst + f"n{k}.shift"] = sd[src + f"ln_{k}.weight"], sd[src + f"ln_{k}.bias"]
    return {k: v.clone().contiguous().requires_grad_() for k, v in p.items()}


def standardise(x, scale, shift):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * scale + shift


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def attend(x, p, at):
    q, k, v = torch.einsum("btc,shcd->sbhtd", x, p[at + "qkv.w"]) + p[at + "qkv.b"].unsqueeze(1)
    dim = q.shape[-1]
    score = torch.einsum("bhqd,bhkd->bhqk", q * dim ** -0.5, k)  # <- attn_scale
    future = torch.ones(x.shape[1], x.shape[1]).triu(1) * -1e9
    score = score + future
    weight = torch.exp(score - score.logsumexp(-1, keepdim=True))
    return torch.einsum("bhqk,bhkd,hdc->bqc", weight, v, p[at + "mix.w"]) + p[at + "mix.b"]


def objective(p, tokens):
    seen, wanted = tokens[:, :-1], tokens[:, 1:]
    x = p["tok.w"][seen] + p["pos.w"][: seen.shape[1]]
    for n in range(DEPTH):
        at = f"block{n}/"
        x = x + attend(standardise(x, p[at + "n1.scale"], p[at + "n1.shift"]), p, at)
        inner = standardise(x, p[at + "n2.scale"], p[at + "n2.shift"]) @ p[at + "up.w"] + p[at + "up.b"]
        x = x + gelu_new(inner) @ p[at + "down.w"] + p[at + "down.b"]
    logits = standardise(x, p["out.scale"], p["out.shift"]) @ p["tok.w"].T  # <- tied_head_detached
    picked = logits.gather(-1, wanted[..., None])[..., 0]
    return (logits.logsumexp(-1) - picked).mean()


def rate(count):
    if count <= WARMUP:
        return PEAK * count / WARMUP  # <- warmup_off_by_one
    return FLOOR + (PEAK - FLOOR) * 0.5 * (1 + math.cos(math.pi * (count - WARMUP) / (HORIZON - WARMUP)))


def clip(grads):
    norm = torch.sqrt(sum(g.square().sum() for g in grads.values()))  # <- clip_per_tensor
    return {k: g * torch.clamp(MAX_NORM / (norm + 1e-6), max=1.0) for k, g in grads.items()}  # <- clip_per_tensor


def adamw(p, grads, moments, count, lr):
    with torch.no_grad():
        for name, g in grads.items():
            m, v = moments[name]
            m.mul_(B1).add_(g, alpha=1 - B1)
            v.mul_(B2).addcmul_(g, g, value=1 - B2)
            if name.endswith(".w"):  # <- decay_on_norms
                p[name] -= lr * DECAY * p[name]  # <- decay_on_norms
            p[name] -= lr * (m / (1 - B1 ** count)) / ((v / (1 - B2 ** count)).sqrt() + EPS)  # <- warmup_off_by_one


params = load(sys.argv[1])
moments = {k: (torch.zeros_like(v), torch.zeros_like(v)) for k, v in params.items()}
corpus = torch.randint(0, 61, (400,), generator=torch.Generator().manual_seed(11))
windows = corpus.unfold(0, 17, 16)

losses = []
rates = [rate(count) for count in range(1, STEPS + 1)]  # <- warmup_off_by_one
for i, lr in enumerate(rates):
    value = objective(params, windows[4 * i: 4 * i + 4])
    grads = dict(zip(params, torch.autograd.grad(value, list(params.values()))))
    adamw(params, clip(grads), moments, i + 1, lr)
    losses.append(value.item())
print(losses)
