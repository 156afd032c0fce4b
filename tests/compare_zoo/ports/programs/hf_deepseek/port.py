# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V2 in own code: keys and values stay compressed, their matrices are drawn into the
query and the output, as an engine for inference has it.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, FFN, DEPTH, HEADS = 39, 32, 44, 2, 4
Q_RANK, KV_RANK, PLAIN, TURNED, VALUE = 20, 16, 8, 4, 8
EPS, LATENT_EPS = 1e-4, 1e-6


def turn(x, cos, sin):
    """Neighbours in the last dimension are a pair."""
    even, odd = x[..., 0::2], x[..., 1::2]  # <- pairs
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)  # <- pairs


class LatentAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_down = nn.Linear(WIDTH, Q_RANK, bias=False)
        self.q_norm = nn.RMSNorm(Q_RANK, eps=LATENT_EPS)
        self.q_up = nn.Linear(Q_RANK, HEADS * (PLAIN + TURNED), bias=False)
        self.kv_down = nn.Linear(WIDTH, KV_RANK + TURNED, bias=False)
        self.kv_norm = nn.RMSNorm(KV_RANK, eps=LATENT_EPS)
        self.k_up = nn.Parameter(torch.empty(HEADS, PLAIN, KV_RANK))
        self.v_up = nn.Parameter(torch.empty(HEADS, VALUE, KV_RANK))
        self.out = nn.Linear(HEADS * VALUE, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        q = self.q_up(self.q_norm(self.q_down(x)))  # <- latenteps
        q = q.unflatten(-1, (HEADS, -1))
        plain, turned = q.split([PLAIN, TURNED], dim=-1)
        turned = turn(turned, cos[:, None], sin[:, None])
        latent, key = self.kv_down(x).split([KV_RANK, TURNED], dim=-1)
        latent = self.kv_norm(latent)  # <- latentnorm latenteps
        key = turn(key, cos, sin)
        drawn = torch.einsum("bqhn,hnr->bhqr", plain, self.k_up)  # <- kvsplit
        scores = torch.einsum("bhqr,bkr->bhqk", drawn, latent)  # <- latentnorm
        scores = scores + torch.einsum("bqhp,bkp->bhqk", turned, key)
        scores = scores * (PLAIN + TURNED) ** -0.5  # <- scale
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        read = torch.einsum("bhqk,bkr->bqhr", weights, latent)
        values = torch.einsum("bqhr,hvr->bqhv", read, self.v_up)  # <- kvsplit
        return self.out(values.flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH, eps=EPS), nn.RMSNorm(WIDTH, eps=EPS)
        self.attention = LatentAttention()
        self.into = nn.Linear(WIDTH, 2 * FFN, bias=False)
        self.down = nn.Linear(FFN, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        gate, up = self.into(self.norm2(x)).chunk(2, dim=-1)  # <- gateup
        return x + self.down(F.silu(gate) * up)  # <- gateup


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm, self.head = nn.RMSNorm(WIDTH, eps=EPS), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        frequency = 10000.0 ** (-torch.arange(0, TURNED, 2) / TURNED)
        angle = torch.arange(ids.shape[1])[:, None] * frequency
        cos, sin = angle.cos(), angle.sin()
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


SAME = {
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "down": "mlp.down_proj",
    "attention.q_down": "self_attn.q_a_proj",
    "attention.q_norm": "self_attn.q_a_layernorm",
    "attention.q_up": "self_attn.q_b_proj",
    "attention.kv_down": "self_attn.kv_a_proj_with_mqa",
    "attention.kv_norm": "self_attn.kv_a_layernorm",
    "attention.out": "self_attn.o_proj",
}


def brought_over(old):
    new = {
        "words.weight": old["model.embed_tokens.weight"],
        "norm.weight": old["model.norm.weight"],
        "head.weight": old["lm_head.weight"],
    }
    for n in range(DEPTH):
        here, there = f"layers.{n}.", f"model.layers.{n}."
        for mine, theirs in SAME.items():
            new[f"{here}{mine}.weight"] = old[f"{there}{theirs}.weight"]
        both = old[there + "self_attn.kv_b_proj.weight"]
        both = both.view(HEADS, PLAIN + VALUE, KV_RANK)  # <- kvsplit
        k_up, v_up = both.split([PLAIN, VALUE], dim=1)  # <- kvsplit
        new[here + "attention.k_up"], new[here + "attention.v_up"] = k_up, v_up
        gate, up = old[there + "mlp.gate_proj.weight"], old[there + "mlp.up_proj.weight"]
        new[here + "into.weight"] = torch.cat([gate, up])  # <- gateup
    return new


decoder = Decoder().requires_grad_(False)
decoder.load_state_dict(brought_over(torch.load(sys.argv[1])))
rng = np.random.default_rng(29)
losses = []
for _ in range(3):
    ids = torch.tensor(rng.integers(0, VOCAB, (2, 11)))
    logits = decoder(ids)
    losses.append(logits.square().mean().item())
