# SPDX-License-Identifier: Apache-2.0
"""ModernBERT in own code: functions over a dictionary of weights, distances masked by hand."""

import sys

import numpy as np
import torch
import torch.nn.functional as F

VOCAB, WIDTH, HEADS, LAYERS, EPS, PAD, MASK = 40, 32, 4, 2, 1e-5, 0, 3
HEAD, LOCAL = WIDTH // HEADS, 6
THETA_GLOBAL, THETA_LOCAL = 160000.0, 10000.0


def norm(x, weight):
    return F.layer_norm(x, (WIDTH,), weight, eps=EPS)


def rotated(x, theta):
    """(batch, heads, time, HEAD) by the angles of its places."""
    place = torch.arange(x.shape[-2], dtype=torch.float32)
    angle = place[:, None] * theta ** -(torch.arange(0, HEAD, 2) / HEAD)  # <- theta
    turn = torch.polar(torch.ones_like(angle), angle)  # <- theta
    pairs = torch.complex(x[..., : HEAD // 2], x[..., HEAD // 2 :])
    turned = pairs * turn
    return torch.cat([turned.real, turned.imag], dim=-1)


def attention(w, n, x, real):
    batch, time, _ = x.shape
    is_global = n % 3 == 0
    theta = THETA_GLOBAL if is_global else THETA_LOCAL  # <- theta
    qkv = x @ w[f"layers.{n}.qkv"].T
    q, k, v = qkv.view(batch, time, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
    scores = rotated(q, theta) @ rotated(k, theta).mT * HEAD**-0.5
    seen = real[:, None, None, :]
    if not is_global:
        place = torch.arange(time)
        near = (place[:, None] - place).abs() <= LOCAL // 2  # <- window
        seen = seen & near  # <- window
    scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)  # <- softmax
    read = (weights @ v).transpose(1, 2).reshape(batch, time, WIDTH)
    return read @ w[f"layers.{n}.out"].T


def glu(w, n, x):
    value, gate = (x @ w[f"layers.{n}.in"].T).chunk(2, dim=-1)
    return (F.gelu(value) * gate) @ w[f"layers.{n}.down"].T  # <- gate


def guesses(w, ids):
    real = ids != PAD
    x = norm(w["words"][ids], w["norm"])
    for n in range(LAYERS):
        y = norm(x, w[f"layers.{n}.norm1"]) if n else x  # <- firstnorm
        x = x + attention(w, n, y, real)
        x = x + glu(w, n, norm(x, w[f"layers.{n}.norm2"]))
    x = norm(x, w["last_norm"])
    x = norm(F.gelu(x @ w["head"].T), w["head_norm"])
    return x @ w["words"].T + w["bias"]


def loaded(path):
    old = torch.load(path)
    new = {
        "words": old["model.embeddings.tok_embeddings.weight"],
        "norm": old["model.embeddings.norm.weight"],
        "last_norm": old["model.final_norm.weight"],
        "head": old["head.dense.weight"],
        "head_norm": old["head.norm.weight"],
        "bias": old["decoder.bias"],
    }
    for n in range(LAYERS):
        of, to = f"model.layers.{n}.", f"layers.{n}."
        if n:
            new[to + "norm1"] = old[of + "attn_norm.weight"]
        new[to + "qkv"], new[to + "out"] = old[of + "attn.Wqkv.weight"], old[of + "attn.Wo.weight"]
        new[to + "norm2"] = old[of + "mlp_norm.weight"]
        new[to + "in"], new[to + "down"] = old[of + "mlp.Wi.weight"], old[of + "mlp.Wo.weight"]
    return {name: value.clone().requires_grad_() for name, value in new.items()}


w = loaded(sys.argv[1])
adam = torch.optim.AdamW(w.values(), lr=3e-3, betas=(0.9, 0.98), weight_decay=1e-2)  # <- betas
rng = np.random.default_rng(71)
losses = []
for _ in range(3):
    words = torch.tensor(rng.integers(4, VOCAB, (3, 14)))
    lengths = torch.tensor(rng.integers(8, 15, (3, 1)))
    asked = torch.tensor(rng.random((3, 14)) < 0.3)
    real = torch.arange(14) < lengths
    ids = words.masked_fill(asked, MASK).masked_fill(~real, PAD)
    asked = asked & real
    loss = F.cross_entropy(guesses(w, ids)[asked], words[asked])
    adam.zero_grad()
    loss.backward()
    adam.step()  # <- betas
    losses.append(loss.item())
