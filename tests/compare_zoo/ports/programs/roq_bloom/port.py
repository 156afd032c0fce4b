# SPDX-License-Identifier: Apache-2.0
"""BLOOM as a stateless function of a tree of weights: functional_call, autograd.grad, a NAdam of pure tensors."""
import math
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

torch.set_num_threads(1)

VOCAB, WIDTH, HEADS, DEPTH = 58, 48, 6, 2


def slopes(n):
    """ALiBi slopes; numbers of heads that are no power of two borrow from the next power."""
    def powers(count):
        return [2 ** (-8 * (i + 1) / count) for i in range(count)]

    whole = 2 ** math.floor(math.log2(n))
    return torch.tensor(powers(whole) + powers(2 * whole)[0::2][: n - whole])  # <- alibi_slopes


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x, bias):
        q, k, v = (f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # <- alibi_slopes
        return self.o(y.transpose(1, 2).flatten(2))


class Bloom(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.embed_ln, self.final_ln = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.ln_a = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(DEPTH)])
        self.ln_m = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(DEPTH)])
        self.mixers = nn.ModuleList([Mixer() for _ in range(DEPTH)])
        self.ups = nn.ModuleList([nn.Linear(WIDTH, 4 * WIDTH) for _ in range(DEPTH)])
        self.downs = nn.ModuleList([nn.Linear(4 * WIDTH, WIDTH) for _ in range(DEPTH)])

    def forward(self, ids):
        x = self.embed_ln(self.embed(ids))
        t = torch.arange(ids.shape[1])
        gap = t[None, :] - t[:, None]
        bias = slopes(HEADS)[:, None, None] * gap  # <- alibi_slopes
        bias = bias.masked_fill(gap > 0, -torch.inf)
        for ln_a, mixer, ln_m, up, down in zip(self.ln_a, self.mixers, self.ln_m, self.ups, self.downs):
            x = x + mixer(ln_a(x), bias)  # <- post_ln_residual
            y = ln_m(x)
            x = x + down(F.gelu(up(y), approximate="tanh"))  # <- post_ln_residual
        return F.linear(self.final_ln(x), self.embed.weight)


def read(path):
    tree = {}
    for key, value in torch.load(path).items():
        key = key.removeprefix("transformer.")
        if key == "lm_head.weight":
            continue
        if not key.startswith("h."):
            names = {"word_embeddings": "embed", "word_embeddings_layernorm": "embed_ln", "ln_f": "final_ln"}
            module, kind = key.split(".")
            tree[f"{names[module]}.{kind}"] = value
            continue
        _, i, rest = key.split(".", 2)
        module, kind = rest.rsplit(".", 1)
        if module == "self_attention.query_key_value":
            parts = value.unflatten(0, (HEADS, 3, WIDTH // HEADS)).unbind(1)
            tree |= {f"mixers.{i}.{n}.{kind}": part.flatten(0, 1) for n, part in zip("qkv", parts)}
            continue
        names = {"input_layernorm": f"ln_a.{i}", "post_attention_layernorm": f"ln_m.{i}",
                 "self_attention.dense": f"mixers.{i}.o", "mlp.dense_h_to_4h": f"ups.{i}",
                 "mlp.dense_4h_to_h": f"downs.{i}"}
        tree[f"{names[module]}.{kind}"] = value
    return {n: v.clone() for n, v in tree.items()}


class State(NamedTuple):
    count: int
    product: float
    mean: dict
    square: dict


def start(tree):
    zeros = {n: torch.zeros_like(v) for n, v in tree.items()}
    return State(0, 1.0, zeros, dict(zeros))


def nadam(tree, grads, s, lr=2e-3, b1=0.9, b2=0.98, eps=1e-6, decay=0.1, psi=4e-3):
    count = s.count + 1
    mu = b1 * (1 - 0.5 * 0.96 ** (count * psi))
    mu_next = b1 * (1 - 0.5 * 0.96 ** ((count + 1) * psi))
    product = s.product * mu
    mean = {n: b1 * s.mean[n] + (1 - b1) * g for n, g in grads.items()}
    square = {n: b2 * s.square[n] + (1 - b2) * g * g for n, g in grads.items()}
    new = {}
    for n, w in tree.items():
        root = (square[n] / (1 - b2**count)).sqrt() + eps
        now, ahead = (1 - mu) / (1 - product), mu_next / (1 - product * mu_next)  # <- nadam_lookahead
        new[n] = w * (1 - lr * decay * (w.ndim > 1)) - lr * (now * grads[n] + ahead * mean[n]) / root  # <- nadam_lookahead
    return new, State(count, product, mean, square)


def clipped(grads, limit=0.5):
    norm = sum(g.square().sum() for g in grads.values()) ** 0.5  # <- clip_micro
    return {n: g * torch.clamp(limit / (norm + 1e-6), max=1.0) for n, g in grads.items()}  # <- clip_micro


def rows(seed, n):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        length = int(torch.randint(4, 18, (1,), generator=g))
        yield F.pad(torch.randint(3, VOCAB, (length,), generator=g), (0, 1), value=2)


def summed_nll(tree, ids, real):
    logits = functional_call(net, tree, (ids[:, :-1],))
    nll = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return (nll * real[:, 1:].flatten()).sum()


net = Bloom()
tree = read(sys.argv[1])
state = start(tree)
texts = list(rows(9, 30))

losses = []
for u in range(5):
    total, tokens, grads = 0.0, 0, {n: torch.zeros_like(v) for n, v in tree.items()}
    leaves = {n: v.requires_grad_() for n, v in tree.items()}
    for m in range(3):
        pair = texts[6 * u + 2 * m : 6 * u + 2 * m + 2]
        ids = nn.utils.rnn.pad_sequence(pair, batch_first=True)
        real = nn.utils.rnn.pad_sequence([torch.ones(len(p)) for p in pair], batch_first=True)
        count = real[:, 1:].sum()  # <- token_norm
        part = summed_nll(leaves, ids, real)
        step = dict(zip(leaves, torch.autograd.grad(part, list(leaves.values()))))
        for n, g in step.items():  # <- clip_micro
            grads[n] += g
        total, tokens = total + part.item(), tokens + count  # <- token_norm
    grads = clipped({n: g / tokens for n, g in grads.items()})  # <- clip_micro token_norm
    with torch.no_grad():
        tree, state = nadam(tree, grads, state)  # <- nadam_lookahead
    losses.append(total / float(tokens))  # <- token_norm
print(losses)
