# SPDX-License-Identifier: Apache-2.0
"""The Llama with merged projections, scaled_dot_product_attention and gradient accumulation."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

VOCAB, DIM, HEADS, KV_HEADS, FFN, DEPTH, LENGTH = 37, 32, 4, 2, 64, 2, 10
HEAD = DIM // HEADS
MICRO_BATCHES = 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wqkv = nn.Linear(DIM, (HEADS + 2 * KV_HEADS) * HEAD, bias=False)
        self.wo = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x, rope):
        b, t, _ = x.shape
        sizes = [HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD]
        q, k, v = self.wqkv(x).split(sizes, dim=-1)
        q = rotate(q.view(b, t, HEADS, HEAD), rope).transpose(1, 2)
        k = rotate(k.view(b, t, KV_HEADS, HEAD), rope).transpose(1, 2)
        v = v.view(b, t, KV_HEADS, HEAD).transpose(1, 2)
        n = HEADS // KV_HEADS
        k = k.unsqueeze(2).expand(-1, -1, n, -1, -1).reshape(b, HEADS, t, HEAD)  # <- groups
        v = v.unsqueeze(2).expand(-1, -1, n, -1, -1).reshape(b, HEADS, t, HEAD)  # <- groups
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, DIM))


def rotate(x, rope):
    cos, sin = rope
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)  # <- rotary


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w13 = nn.Linear(DIM, 2 * FFN, bias=False)
        self.w2 = nn.Linear(FFN, DIM, bias=False)

    def forward(self, x):
        gate, up = self.w13(x).chunk(2, dim=-1)
        return self.w2(silu(gate) * up)  # <- gate


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.feed_forward = FeedForward()
        self.attention_norm = nn.RMSNorm(DIM, eps=1e-5)  # <- eps
        self.ffn_norm = nn.RMSNorm(DIM, eps=1e-5)

    def forward(self, x, rope):
        x = x + self.attention(self.attention_norm(x), rope)  # <- eps
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm = nn.RMSNorm(DIM, eps=1e-5)
        self.output = nn.Linear(DIM, VOCAB, bias=False)
        angles = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.layers:
            h = layer(h, (self.cos, self.sin))
        return self.output(self.norm(h))


def from_separate(old):
    new = {
        "embed.weight": old["embed_tokens.weight"],
        "norm.weight": old["norm.weight"],
        "output.weight": old["lm_head.weight"],
    }
    for i in range(DEPTH):
        p = f"layers.{i}."
        q, k, v = (old[f"{p}self_attn.{name}_proj.weight"] for name in "qkv")
        gate, up = old[f"{p}mlp.gate_proj.weight"], old[f"{p}mlp.up_proj.weight"]
        new[f"{p}attention.wqkv.weight"] = torch.cat([q, k, v])
        new[f"{p}attention.wo.weight"] = old[f"{p}self_attn.o_proj.weight"]
        new[f"{p}feed_forward.w13.weight"] = torch.cat([gate, up])
        new[f"{p}feed_forward.w2.weight"] = old[f"{p}mlp.down_proj.weight"]
        new[f"{p}attention_norm.weight"] = old[f"{p}input_layernorm.weight"]
        new[f"{p}ffn_norm.weight"] = old[f"{p}post_attention_layernorm.weight"]
    return new


model = Transformer()
model.load_state_dict(from_separate(torch.load(sys.argv[1])))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
data = torch.from_numpy(np.random.default_rng(3).integers(0, VOCAB, (3, 4, LENGTH + 1)))
losses = []
for batch in data:
    total = 0.0
    for micro in batch.chunk(MICRO_BATCHES):
        logits = model(micro[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), micro[:, 1:].flatten())
        loss = loss / MICRO_BATCHES
        loss.backward()  # <- zeroed
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip
    optimizer.step()
    optimizer.zero_grad()  # <- zeroed
    losses.append(total)
