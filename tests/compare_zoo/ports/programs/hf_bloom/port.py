# SPDX-License-Identifier: Apache-2.0
"""Bloom in own code: functions over a dictionary of weights, one batched bias of distances."""

import math
import sys

import numpy as np
import torch
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, DEPTH, EPS, PAD = 43, 48, 6, 2, 1e-5, 3
HEAD = WIDTH // HEADS


def slopes(heads):
    """Powers for the nearest power of two, then every other one of the next."""
    whole = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * (n + 1) / whole) for n in range(whole)]
    more = [2 ** (-4 * (2 * n + 1) / whole) for n in range(heads - whole)]  # <- slopes
    return torch.tensor(first + more)  # <- slopes


def norm(w, name, x):
    return F.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], EPS)


def dense(w, name, x):
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]  # <- transposed


def attention(w, name, x, bias):
    batch, time, _ = x.shape
    fused = dense(w, f"{name}.query_key_value", x)
    q, k, v = fused.view(batch, time, HEADS, 3, HEAD).permute(3, 0, 2, 1, 4)  # <- fused
    scores = q @ k.mT / math.sqrt(HEAD)  # <- fused
    weights = (scores + bias).softmax(dim=-1)  # <- padding
    read = (weights @ v).transpose(1, 2).reshape(batch, time, WIDTH)
    return dense(w, f"{name}.dense", read)


def feed_forward(w, name, x):
    hidden = F.gelu(dense(w, f"{name}.dense_h_to_4h", x), approximate="tanh")  # <- gelu
    return dense(w, f"{name}.dense_4h_to_h", hidden)


def biases(real):
    """Distances by head, and the least number where a query may not look."""
    batch, time = real.shape
    distance = slopes(HEADS)[:, None, None] * torch.arange(time)  # <- slopes
    seen = torch.ones(time, time, dtype=torch.bool).tril()
    seen = seen & real[:, None, None, :]  # <- padding
    least = torch.finfo(torch.float32).min
    return distance.expand(batch, HEADS, time, time).masked_fill(~seen, least)  # <- padding


def bloom(w, ids):
    bias = biases(ids != PAD)  # <- padding
    x = w["word_embeddings.weight"][ids]
    x = norm(w, "word_embeddings_layernorm", x)  # <- embednorm
    for n in range(DEPTH):
        y = norm(w, f"h.{n}.input_layernorm", x)  # <- embednorm
        x = x + attention(w, f"h.{n}.self_attention", y, bias)
        y = norm(w, f"h.{n}.post_attention_layernorm", x)
        x = x + feed_forward(w, f"h.{n}.mlp", y)
    return norm(w, "ln_f", x) @ w["word_embeddings.weight"].T


def loaded(path):
    state = {}
    for theirs, value in torch.load(path).items():
        name = theirs.removeprefix("transformer.")
        turned = value.dim() == 2 and "embeddings" not in name
        state[name] = value.T.contiguous() if turned else value  # <- transposed
    return state


weights = loaded(sys.argv[1])
rng = np.random.default_rng(19)
losses = []
for _ in range(3):
    ids = torch.tensor(rng.integers(4, VOCAB, (3, 12)))
    lengths = torch.tensor(rng.integers(5, 13, 3))
    real = torch.arange(12) >= 12 - lengths[:, None]
    ids = ids.masked_fill(~real, PAD)
    logits = bloom(weights, ids)
    losses.append(logits[real].square().mean().item())
