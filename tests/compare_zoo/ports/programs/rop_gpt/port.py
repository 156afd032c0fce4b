# SPDX-License-Identifier: Apache-2.0
"""GPT-2 as pure functions over a flat dictionary of arrays, with heads as an axis of the weights."""
import math
import sys

import torch

torch.set_num_threads(1)

VOCAB, WIDTH, HEADS, DEPTH, CONTEXT = 53, 32, 4, 2, 16
HEAD = WIDTH // HEADS
PEAK_LR, WARMUP, DECAY, CLIP = 6e-3, 4, 0.1, 1.0


def import_checkpoint(path):
    sd = torch.load(path)
    p = {"tok": sd["wte.weight"], "pos": sd["wpe.weight"]}
    p["out.gain"], p["out.shift"] = sd["ln_f.weight"], sd["ln_f.bias"]
    for i in range(DEPTH):
        src, dst = f"h.{i}.", f"{i}."
        kernels = sd[src + "attn.c_attn.weight"].T.reshape(WIDTH, 3, HEADS, HEAD)
        offsets = sd[src + "attn.c_attn.bias"].reshape(3, HEADS, HEAD)
        for j, name in enumerate("qkv"):
            p[f"{dst}{name}.kernel"] = kernels[:, j]
            p[f"{dst}{name}.offset"] = offsets[j]
        p[dst + "o.kernel"] = sd[src + "attn.c_proj.weight"].T.reshape(HEADS, HEAD, WIDTH)
        p[dst + "o.offset"] = sd[src + "attn.c_proj.bias"]
        for theirs, ours in (("mlp.c_fc", "up"), ("mlp.c_proj", "down")):
            p[f"{dst}{ours}.kernel"] = sd[f"{src}{theirs}.weight"].T
            p[f"{dst}{ours}.offset"] = sd[f"{src}{theirs}.bias"]
        for theirs, ours in (("ln_1", "pre_attn"), ("ln_2", "pre_mlp")):
            p[f"{dst}{ours}.gain"] = sd[f"{src}{theirs}.weight"]
            p[f"{dst}{ours}.shift"] = sd[f"{src}{theirs}.bias"]
    return {k: v.clone().contiguous().requires_grad_() for k, v in p.items()}


def norm(p, name, x):
    mu = x.mean(-1, keepdim=True)
    var = (x - mu).square().mean(-1, keepdim=True)
    return (x - mu) * torch.rsqrt(var + 1e-5) * p[name + ".gain"] + p[name + ".shift"]


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))  # <- gelu_variant


def attend(p, at, x):
    q, k, v = (torch.einsum("btd,dhk->bthk", x, p[f"{at}{n}.kernel"]) + p[f"{at}{n}.offset"] for n in "qkv")
    scores = torch.einsum("bqhk,bshk->bhqs", q, k) / math.sqrt(HEAD)
    future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    probs = scores.masked_fill(future, float("-inf")).softmax(-1)
    mixed = torch.einsum("bhqs,bshk->bqhk", probs, v)
    return torch.einsum("bqhk,hkd->bqd", mixed, p[at + "o.kernel"]) + p[at + "o.offset"]


def next_token_loss(p, window):
    inputs, answers = window[:, :-1], window[:, 1:]
    place = torch.arange(CONTEXT)  # <- positions_from_one
    x = p["tok"][inputs] + p["pos"][place]  # <- positions_from_one
    for i in range(DEPTH):
        at = f"{i}."
        x = x + attend(p, at, norm(p, at + "pre_attn", x))
        h = norm(p, at + "pre_mlp", x) @ p[at + "up.kernel"] + p[at + "up.offset"]
        x = x + gelu(h) @ p[at + "down.kernel"] + p[at + "down.offset"]  # <- gelu_variant
    logits = norm(p, "out", x) @ p["tok"].T
    picked = logits.gather(-1, answers[..., None])[..., 0]
    return (logits.logsumexp(-1) - picked).mean()


def clip(grads):
    size = torch.sqrt(sum(g.square().sum() for g in grads.values()))
    factor = (CLIP / (size + 1e-6)).clamp(max=1.0)
    return {k: g * factor for k, g in grads.items()}  # <- clip_per_tensor


def is_matrix(name):
    return name in ("tok", "pos") or name.endswith(".kernel")  # <- decay_on_vectors


def lr_at(step):
    return PEAK_LR * min(1.0, (step + 1) / WARMUP)  # <- warmup_late


def adamw(p, grads, m, v, step, b1=0.9, b2=0.95, eps=1e-8):
    lr, n = lr_at(step), step + 1  # <- warmup_late
    with torch.no_grad():
        for k, g in grads.items():
            m[k] = b1 * m[k] + (1 - b1) * g
            v[k] = b2 * v[k] + (1 - b2) * g * g
            change = (m[k] / (1 - b1**n)) / ((v[k] / (1 - b2**n)).sqrt() + eps)
            if is_matrix(k):  # <- decay_on_vectors
                p[k].mul_(1 - lr * DECAY)  # <- decay_on_vectors
            p[k].sub_(lr * change)  # <- warmup_late


def windows(steps=5, batch=6):
    gen = torch.Generator().manual_seed(7)
    text = torch.randint(VOCAB, (400,), generator=gen)
    every = text.unfold(0, CONTEXT + 1, 1)
    for _ in range(steps):
        yield every[torch.randint(400 - CONTEXT - 1, (batch,), generator=gen)]


params = import_checkpoint(sys.argv[1])
first = {k: torch.zeros_like(t) for k, t in params.items()}
second = {k: torch.zeros_like(t) for k, t in params.items()}
losses = []
for step, window in enumerate(windows()):
    loss = next_token_loss(params, window)
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    grads = clip(grads)  # <- clip_per_tensor
    adamw(params, grads, first, second, step)  # <- decay_on_vectors warmup_late
    losses.append(loss.item())
print(losses)
