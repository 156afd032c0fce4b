# SPDX-License-Identifier: Apache-2.0
"""A small Llama-like language model (RMSNorm, RoPE on halves, grouped queries, SwiGLU) trained with AdamW."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, KV_HEADS, INNER, LAYERS = 43, 32, 4, 2, 48, 2
HEAD = WIDTH // HEADS


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH) + 0.2 * torch.randn(WIDTH))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))  # <- rms


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)  # <- rope
    return torch.cat((-x2, x1), dim=-1)  # <- rope


def rope(x):
    freq = 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD)
    angle = torch.outer(torch.arange(x.size(2)).float(), freq)
    angle = torch.cat((angle, angle), dim=-1)  # <- rope
    return x * angle.cos() + rotate_half(x) * angle.sin()  # <- rope


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k_proj = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.v_proj = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = rope(self.q_proj(x).view(b, t, HEADS, HEAD).transpose(1, 2))
        k = rope(self.k_proj(x).view(b, t, KV_HEADS, HEAD).transpose(1, 2))
        v = self.v_proj(x).view(b, t, KV_HEADS, HEAD).transpose(1, 2)
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=1)  # <- groups
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=1)  # <- groups
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, WIDTH))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = RMSNorm()
        self.self_attn = Attention()
        self.post_attention_layernorm = RMSNorm()
        self.gate_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.up_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))  # <- swiglu


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList([DecoderLayer() for _ in range(LAYERS)])
        self.norm = RMSNorm()
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


torch.manual_seed(5)
model = Llama()
nn.init.normal_(model.embed_tokens.weight, std=0.02)
for layer in model.layers:
    nn.init.normal_(layer.gate_proj.weight, std=0.3)
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.AdamW(
    model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1
)  # <- decay
random = np.random.RandomState(11)
losses = []
for _ in range(4):
    text = torch.tensor(random.randint(0, VOCAB, (4, 11)))
    logits = model(text[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), text[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
print(losses)
