# SPDX-License-Identifier: Apache-2.0
"""Llama-like decoder (RMSNorm, rotary, grouped-query attention, SwiGLU) fine-tuned with AdamW."""
import sys

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Config:
    vocab_size, hidden, ffn, layers = 53, 32, 32, 2
    n_heads, n_kv_heads = 4, 2
    rope_theta = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):  # <- rms_eps
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps  # <- rms_eps

    def forward(self, x):
        rms = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)  # <- rms_eps
        return self.weight * (x * rms)


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)  # <- rope_interleaved
    return torch.cat((-x2, x1), dim=-1)  # <- rope_interleaved


def apply_rope(x, theta):
    t, d = x.shape[-2:]
    inv = 1.0 / theta ** (torch.arange(0, d, 2).float() / d)
    ang = torch.outer(torch.arange(t).float(), inv)
    ang = torch.cat((ang, ang), dim=-1)  # <- rope_interleaved
    return x * ang.cos() + rotate_half(x) * ang.sin()  # <- rope_interleaved


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.d = c, c.hidden // c.n_heads
        kv = c.n_kv_heads * self.d
        self.q_proj = nn.Linear(c.hidden, c.hidden, bias=False)
        self.k_proj, self.v_proj = nn.Linear(c.hidden, kv, bias=False), nn.Linear(c.hidden, kv, bias=False)
        self.o_proj = nn.Linear(c.hidden, c.hidden, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, self.d).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        q, k = apply_rope(q, self.c.rope_theta), apply_rope(k, self.c.rope_theta)
        rep = self.c.n_heads // self.c.n_kv_heads
        k = k.repeat_interleave(rep, dim=1)  # <- kv_heads_tiled
        v = v.repeat_interleave(rep, dim=1)  # <- kv_heads_tiled
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class DecoderLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden)
        self.gate_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden)
        self.layers = nn.ModuleList(DecoderLayer(c) for _ in range(c.layers))
        self.norm = RMSNorm(c.hidden)
        self.lm_head = nn.Linear(c.hidden, c.vocab_size, bias=False)

    def forward(self, ids, labels):
        h = self.embed_tokens(ids)
        for layer in self.layers:
            h = layer(h)
        logits = self.lm_head(self.norm(h))[:, :-1]
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1),  # <- mean_over_prompt
                               ignore_index=-100)  # <- mean_over_prompt


torch.manual_seed(42)
model = Llama(Config)
for p in model.parameters():
    if p.dim() == 2:
        nn.init.normal_(p, std=0.15)
nn.init.normal_(model.embed_tokens.weight, std=0.01)
np.savez(sys.argv[1], **{n: p.detach().numpy() for n, p in model.state_dict().items()})

opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)  # <- decay_in_gradient

rng = np.random.RandomState(8)
losses = []
for _ in range(4):
    ids = rng.randint(0, Config.vocab_size, size=(4, 12))
    prompt = rng.randint(2, 7, size=4)
    labels = np.where(np.arange(12)[None] < prompt[:, None], -100, ids)
    loss = model(torch.from_numpy(ids), torch.from_numpy(labels))
    loss.backward()
    opt.step()  # <- decay_in_gradient
    opt.zero_grad()
    losses.append(loss.item())
print(losses)
