# SPDX-License-Identifier: Apache-2.0
"""A small Llama with separate projections, as the first public code had it."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, N_HEADS, N_KV, HIDDEN, LAYERS, SEQ = 37, 32, 4, 2, 64, 2, 10
HEAD_DIM = DIM // N_HEADS


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        rms = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)  # <- eps
        return x * rms * self.weight  # <- eps


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)  # <- rotary


def apply_rotary(x, cos, sin):
    return x * cos + rotate_half(x) * sin  # <- rotary


def repeat_kv(x, n):
    return x.repeat_interleave(n, dim=1)  # <- groups


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(DIM, DIM, bias=False)
        self.k_proj = nn.Linear(DIM, N_KV * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(DIM, N_KV * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x, cos, sin, mask):
        bsz, seq, _ = x.shape
        q = self.q_proj(x).view(bsz, seq, N_HEADS, HEAD_DIM).transpose(1, 2)
        k = self.k_proj(x).view(bsz, seq, N_KV, HEAD_DIM).transpose(1, 2)
        v = self.v_proj(x).view(bsz, seq, N_KV, HEAD_DIM).transpose(1, 2)
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        k, v = repeat_kv(k, N_HEADS // N_KV), repeat_kv(v, N_HEADS // N_KV)  # <- groups
        att = torch.matmul(q, k.transpose(2, 3)) / HEAD_DIM**0.5 + mask
        att = F.softmax(att, dim=-1)
        out = torch.matmul(att, v).transpose(1, 2).reshape(bsz, seq, DIM)
        return self.o_proj(out)


class LlamaMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(DIM, HIDDEN, bias=False)
        self.up_proj = nn.Linear(DIM, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # <- gate


class LlamaLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = LlamaAttention()
        self.mlp = LlamaMLP()
        self.input_layernorm = RMSNorm(DIM)
        self.post_attention_layernorm = RMSNorm(DIM)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)  # <- eps
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([LlamaLayer() for _ in range(LAYERS)])
        self.norm = RMSNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        seq = tokens.shape[1]
        inv_freq = 1.0 / 10000 ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
        freqs = torch.outer(torch.arange(seq).float(), inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos(), emb.sin()
        mask = torch.full((seq, seq), float("-inf")).triu(1)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.lm_head(self.norm(x))


torch.manual_seed(7)
model = Llama()
nn.init.normal_(model.embed_tokens.weight, std=0.1)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
corpus = torch.from_numpy(np.random.default_rng(3).integers(0, VOCAB, (3, 4, SEQ + 1)))
losses = []
for step, batch in enumerate(corpus):
    optimizer.zero_grad()  # <- zeroed
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
    loss.backward()  # <- zeroed
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip
    optimizer.step()
    losses.append(loss.item())
    print(f"step {step}: loss {loss.item():.4f} ppl {loss.exp().item():.2f}")
