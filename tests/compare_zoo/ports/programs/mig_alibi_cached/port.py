# SPDX-License-Identifier: Apache-2.0
"""The greedy continuation for serving: a cache of keys and values of fixed size, the prompt at once,
then word by word; projections fused to one matrix, functions in place of modules.
"""

import math
import sys

import torch
from torch.nn.functional import dropout, gelu, layer_norm, linear, one_hot

V, E, N_HEADS, DEPTH, B, LEN, MORE = 30, 24, 4, 2, 3, 6, 5
D = E // N_HEADS
LIMIT = LEN + MORE


def alibi_slopes(n):
    start = 2.0 ** -(2.0 ** -(math.log2(n) - 3))
    return torch.tensor([start * start**i for i in range(n)])  # <- slopes


def weights(path):
    old = torch.load(path)
    model = {"words": old["words.weight"], "norm": (old["norm.weight"], old["norm.bias"])}
    for i in range(DEPTH):
        parts = [f"blocks.{i}.attention.query", f"blocks.{i}.attention.key_value", f"blocks.{i}.up"]
        ends = [f"blocks.{i}.attention.dense", f"blocks.{i}.down"]
        model[f"norm{i}"] = tuple(old[f"blocks.{i}.input_norm.{k}"] for k in ("weight", "bias"))
        model[f"in{i}"] = tuple(
            torch.cat([old[f"{p}.{k}"] for p in parts]) for k in ("weight", "bias")
        )
        model[f"out{i}"] = (
            torch.cat([old[f"{p}.weight"] for p in ends], 1),
            sum(old[f"{p}.bias"] for p in ends),
        )
    return model


class Cache:
    """Keys and values of all layers, and which places hold a word."""

    def __init__(self):
        self.keys = torch.zeros(DEPTH, B, LIMIT, D)
        self.values = torch.zeros(DEPTH, B, LIMIT, D)
        self.filled = torch.zeros(B, LIMIT, dtype=torch.bool)
        self.length = 0

    def write(self, layer, k, v):
        here = slice(self.length, self.length + k.shape[1])  # <- stale
        self.keys[layer, :, here] = k  # <- stale
        self.values[layer, :, here] = v  # <- stale
        return self.keys[layer], self.values[layer]  # <- stale


def attend(q, k, v, cache):
    s = q.shape[1]
    rows = torch.arange(cache.length, cache.length + s)
    ago = rows[:, None] - torch.arange(LIMIT)
    # (batch, place, head, other place)
    score = torch.einsum("bqhd,bkd->bqhk", q * D**-0.5, k)  # <- shared stale
    score = score - alibi_slopes(N_HEADS)[:, None] * ago[:, None]  # <- slopes
    never = (ago < 0)[None, :, None] | ~cache.filled[:, None, None]  # <- left
    part = torch.where(never, torch.tensor(-1e9), score).softmax(-1)  # <- left
    return torch.einsum("bqhk,bkd->bqhd", part, v).flatten(2)  # <- shared stale


def run(model, ids, cache, *, training=False):  # <- dropped
    s = ids.shape[1]
    cache.filled[:, cache.length : cache.length + s] = ids != 0  # <- left
    x = one_hot(ids, V).float() @ model["words"]
    for i in range(DEPTH):
        h = layer_norm(x, (E,), *model[f"norm{i}"])
        q, k, v, up = linear(h, *model[f"in{i}"]).split((E, D, D, 4 * E), -1)  # <- shared
        k, v = cache.write(i, k, v)  # <- stale
        y = torch.cat(
            (attend(q.unflatten(-1, (N_HEADS, D)), k, v, cache), gelu(up)), -1
        )  # <- shared
        x = x + dropout(linear(y, *model[f"out{i}"]), 0.1, training)  # <- dropped
    cache.length += s
    return layer_norm(x[:, -1], (E,), *model["norm"]) @ model["words"].T


def prompts(rng):
    ids = torch.randint(1, V, (B, LEN), generator=rng)
    missing = torch.randint(0, 3, (B, 1), generator=rng)
    return ids * (torch.arange(LEN) >= missing)


@torch.inference_mode()
def generate(model, ids):
    cache = Cache()
    scores, told = [], ids
    for _ in range(MORE):
        logits = run(model, ids, cache)  # <- dropped
        normal = logits.logsumexp(-1)
        logits[:, 0] = -torch.inf
        ids = logits.argmax(-1, keepdim=True)
        scores.append(logits.gather(1, ids).squeeze(1) - normal)
        told = torch.cat((told, ids), 1)
    return torch.stack(scores).sum(0), told


model = weights(sys.argv[1])
rng = torch.Generator().manual_seed(242)
losses = []
for _ in range(3):
    score, told = generate(model, prompts(rng))
    losses.append(score.mean().item())
