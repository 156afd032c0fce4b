# SPDX-License-Identifier: Apache-2.0
"""The Pythia without the package: a tree of tensors and functions, heads by einsum, rotation by
complex numbers, AdamW by hand."""

import math
import sys

import torch
from torch.nn.functional import gelu, layer_norm

VOCAB, D, H, LAYERS, ROTARY, LENGTH, BATCH = 50, 32, 4, 2, 4, 12, 4
E = D // H


def import_pythia(theirs):
    def both(name):
        return theirs[f"{name}.weight"], theirs[f"{name}.bias"]

    tree = {
        "embed": theirs["gpt_neox.embed_in.weight"],
        "unembed": theirs["lm_head.weight"].t(),
    }
    tree["final.w"], tree["final.b"] = both("gpt_neox.final_layer_norm")
    for n in range(LAYERS):
        here = f"gpt_neox.layers.{n}"
        tree[f"{n}.ln1.w"], tree[f"{n}.ln1.b"] = both(f"{here}.input_layernorm")
        tree[f"{n}.ln2.w"], tree[f"{n}.ln2.b"] = both(f"{here}.post_attention_layernorm")
        weight, bias = both(f"{here}.attention.query_key_value")
        weights = weight.view(H, 3, E, D).unbind(1)  # <- heads
        biases = bias.view(H, 3, E).unbind(1)  # <- heads
        for letter, w, b in zip("qkv", weights, biases):
            tree[f"{n}.{letter}.w"] = w.transpose(1, 2)  # [head, model, e]
            tree[f"{n}.{letter}.b"] = b[:, None]
        weight, bias = both(f"{here}.attention.dense")
        tree[f"{n}.o.w"], tree[f"{n}.o.b"] = weight.t().reshape(H, E, D), bias
        for ours, name in (("up", "dense_h_to_4h"), ("down", "dense_4h_to_h")):
            weight, bias = both(f"{here}.mlp.{name}")
            tree[f"{n}.{ours}.w"], tree[f"{n}.{ours}.b"] = weight.t(), bias
    return {name: t.clone().contiguous().requires_grad_() for name, t in tree.items()}


def rotate(x, turns):
    half = ROTARY // 2
    rest = x[..., ROTARY:]
    z = torch.complex(x[..., :half], x[..., half:ROTARY]) * turns  # <- rotary
    return torch.cat((z.real, z.imag, rest), dim=-1)  # <- rotary


def attention(p, n, x, turns):
    normed = layer_norm(x, (D,), p[f"{n}.ln1.w"], p[f"{n}.ln1.b"])
    q, k, v = (
        torch.einsum("btd,hde->bhte", normed, p[f"{n}.{letter}.w"]) + p[f"{n}.{letter}.b"]
        for letter in "qkv"
    )  # <- heads
    q, k = rotate(q, turns), rotate(k, turns)
    scores = torch.einsum("bhse,bhte->bhst", q, k) / math.sqrt(E)
    later = torch.arange(LENGTH)[None, :] > torch.arange(LENGTH)[:, None]
    weights = scores.masked_fill(later, -math.inf).softmax(-1)
    return torch.einsum("bhst,bhte,hed->bsd", weights, v, p[f"{n}.o.w"]) + p[f"{n}.o.b"]


def mlp(p, n, x):
    normed = layer_norm(x, (D,), p[f"{n}.ln2.w"], p[f"{n}.ln2.b"])  # <- residual
    return gelu(normed @ p[f"{n}.up.w"] + p[f"{n}.up.b"]) @ p[f"{n}.down.w"] + p[f"{n}.down.b"]


def loss_of(p, tokens, lengths):
    angles = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(0, ROTARY, 2) / ROTARY)
    turns = torch.polar(torch.ones_like(angles), angles)
    x = p["embed"][tokens]
    for n in range(LAYERS):
        a = attention(p, n, x, turns)
        x = x + a + mlp(p, n, x)  # <- residual
    x = layer_norm(x, (D,), p["final.w"], p["final.b"])
    logp = (x @ p["unembed"]).log_softmax(-1)[:, :-1]
    picked = logp.gather(-1, tokens[:, 1:, None])[..., 0]
    counted = torch.arange(1, LENGTH) < lengths
    return -(picked * counted).sum() / counted.sum()


tree = import_pythia(torch.load(sys.argv[1]))
state = {name: (torch.zeros_like(t), torch.zeros_like(t)) for name, t in tree.items()}
rng = torch.Generator().manual_seed(311)
losses = []
for step in range(1, 5):
    tokens = torch.randint(1, VOCAB, (BATCH, LENGTH), generator=rng)
    lengths = torch.randint(6, LENGTH + 1, (BATCH, 1), generator=rng)
    loss = loss_of(tree, tokens, lengths)
    grads = dict(zip(tree, torch.autograd.grad(loss, list(tree.values()))))
    norm = torch.stack([g.square().sum() for g in grads.values()]).sum().sqrt()
    lr = 4e-3 * min(1.0, step / 3)  # <- warmup
    with torch.no_grad():
        for name, t in tree.items():
            m, v = state[name]
            g = grads[name] * min(1.0, 1.0 / (norm.item() + 1e-6))
            m.lerp_(g, 0.1)
            v.lerp_(g * g, 0.05)
            if not name.endswith(".b") and ".ln" not in name and name != "final.w":  # <- decay
                t.mul_(1 - lr * 0.1)  # <- decay
            rms = (v / (1 - 0.95**step)).sqrt() + 1e-4
            t.sub_(lr * (m / (1 - 0.9**step)) / rms)  # <- warmup decay
    losses.append(loss.item())
