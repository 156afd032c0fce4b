# SPDX-License-Identifier: Apache-2.0
"""Granite without modules: functions over a dictionary of tensors, a cache allocated once for the
whole sequence, prompt and continuation through the same function.
"""

import sys
from functools import partial
from typing import NamedTuple

import torch
from torch.nn.functional import embedding, linear, silu


class Config(NamedTuple):
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    eps: float = 1e-6
    embed_by: float = 6.0
    logits_by: float = 4.0
    residual_by: float = 0.3
    attend_by: float = 0.2


class Cache:
    def __init__(self, c, batch, room):
        shape = (c.layers, batch, room, c.kv_heads, c.head_dim)
        self.k, self.v = torch.zeros(shape), torch.zeros(shape)
        self.visible = torch.zeros(batch, room, dtype=torch.bool)
        self.used = 0

    def put(self, layer, k, v):
        end = self.used + k.shape[1]
        self.k[layer, :, self.used : end] = k  # <- slot
        self.v[layer, :, self.used : end] = v  # <- slot
        return self.k[layer, :, :end], self.v[layer, :, :end]


def rms(x, weight, eps):
    return x * (x * x).mean(-1, keepdim=True).add(eps).rsqrt() * weight


def rotary(positions, dim):
    inv = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angle = positions[..., None, None] * inv  # <- positions
    return angle.cos(), angle.sin()


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(c, w, x, turn, allowed, put):
    batch, time, _ = x.shape
    q = linear(x, w["self_attn.q_proj.weight"]).view(batch, time, c.heads, c.head_dim)
    k = linear(x, w["self_attn.k_proj.weight"]).view(batch, time, c.kv_heads, c.head_dim)
    v = linear(x, w["self_attn.v_proj.weight"]).view(batch, time, c.kv_heads, c.head_dim)
    q, k = rotated(q, *turn), rotated(k, *turn)
    k, v = put(k, v)  # <- slot
    share = c.heads // c.kv_heads
    k, v = k.repeat_interleave(share, 2), v.repeat_interleave(share, 2)  # <- groups
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * c.attend_by  # <- scale
    scores = torch.where(allowed[:, None], scores, torch.finfo(scores.dtype).min)  # <- pads
    out = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
    return linear(out.reshape(batch, time, -1), w["self_attn.o_proj.weight"])


def mlp(w, x):
    gate = silu(linear(x, w["mlp.gate_proj.weight"]))
    return linear(gate * linear(x, w["mlp.up_proj.weight"]), w["mlp.down_proj.weight"])


def of_layer(w, layer):
    start = f"model.layers.{layer}."
    return {name.removeprefix(start): t for name, t in w.items() if name.startswith(start)}


def step(c, w, ids, positions, valid, cache):
    """Logits behind the last of these tokens."""
    time = ids.shape[1]
    end = cache.used + time
    cache.visible[:, cache.used : end] = valid
    causal = torch.arange(end)[None, :] <= torch.arange(cache.used, end)[:, None]
    allowed = causal[None] & cache.visible[:, None, :end]  # <- pads
    turn = rotary(positions, c.head_dim)
    x = embedding(ids, w["model.embed_tokens.weight"]) * c.embed_by
    for layer in range(c.layers):
        own = of_layer(w, layer)
        h = rms(x, own["input_layernorm.weight"], c.eps)
        h = attention(c, own, h, turn, allowed, partial(cache.put, layer))
        x = x + c.residual_by * h
        h = mlp(own, rms(x, own["post_attention_layernorm.weight"], c.eps))
        x = x + c.residual_by * h  # <- residual
    cache.used = end  # <- slot
    last = rms(x[:, -1], w["model.norm.weight"], c.eps)
    return linear(last, w["model.embed_tokens.weight"]) / c.logits_by


def left_padded(prompts):
    longest = max(len(p) for p in prompts)
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in zip(ids, prompts):
        row[longest - len(prompt) :] = torch.tensor(prompt)
    return ids


@torch.inference_mode()
def main(path, new_tokens=6):
    c, w = Config(), torch.load(path)
    ids = left_padded([[1, 17, 42, 8, 30, 9, 26], [1, 5, 44, 12]])
    valid = ids.ne(0)
    positions = (valid.cumsum(1) - 1).clamp(min=0)
    cache = Cache(c, len(ids), ids.shape[1] + new_tokens)
    found, total = [], 0
    for _ in range(new_tokens):
        logits = step(c, w, ids, positions, valid, cache)
        found += [logits.logsumexp(-1).mean().item(), logits.amax(-1).sum().item()]
        ids = logits.argmax(-1, keepdim=True)
        positions = positions[:, -1:] + 1  # <- positions
        valid = torch.ones_like(ids, dtype=torch.bool)
        total += int(ids.sum())
    return [*found, float(total)]


losses = main(sys.argv[1])
