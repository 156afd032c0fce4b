# SPDX-License-Identifier: Apache-2.0
"""A small Llama (GQA, RoPE by halves, SwiGLU, RMSNorm) in eager mode, on packed documents, with accumulation."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

VOCAB, HIDDEN, HEADS, KV_HEADS, LAYERS, INTER, LENGTH = 64, 32, 4, 2, 1, 48, 16
HEAD_DIM = HIDDEN // HEADS


class LlamaRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)  # <- rope_layout
    return torch.cat((-second, first), dim=-1)  # <- rope_layout


def repeat_kv(x, n_rep):
    batch, heads, length, dim = x.shape
    x = x[:, :, None].expand(batch, heads, n_rep, length, dim)  # <- kv_repeat
    return x.reshape(batch, heads * n_rep, length, dim)  # <- kv_repeat


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, HEADS, HEAD_DIM).transpose(1, 2)
        k = self.k_proj(x).view(b, t, KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = self.v_proj(x).view(b, t, KV_HEADS, HEAD_DIM).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin  # <- rope_layout
        k = k * cos + rotate_half(k) * sin  # <- rope_layout
        k, v = repeat_kv(k, HEADS // KV_HEADS), repeat_kv(v, HEADS // KV_HEADS)
        scores = q @ k.transpose(2, 3) / HEAD_DIM ** 0.5 + mask  # <- packing_mask
        out = scores.softmax(-1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(b, t, -1))


class LlamaLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = LlamaRMSNorm(HIDDEN), LlamaRMSNorm(HIDDEN)
        self.self_attn = LlamaAttention()
        self.gate_proj = nn.Linear(HIDDEN, INTER, bias=False)
        self.up_proj = nn.Linear(HIDDEN, INTER, bias=False)
        self.down_proj = nn.Linear(INTER, HIDDEN, bias=False)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList([LlamaLayer() for _ in range(LAYERS)])
        self.norm = LlamaRMSNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, ids, docs):
        t = ids.shape[1]
        angles = torch.outer(torch.arange(t).float(), 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
        angles = torch.cat((angles, angles), dim=-1)
        visible = torch.ones(t, t).tril().bool() & (docs[:, None, :, None] == docs[:, None, None, :])  # <- packing_mask
        mask = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)  # <- packing_mask
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin(), mask)
        return self.lm_head(self.norm(x))


torch.manual_seed(42)
model = Llama()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1)

gen = torch.Generator().manual_seed(6)
losses = []
for step in range(5):
    micro = []
    for part in range(2):
        ids = torch.randint(0, VOCAB, (3, LENGTH + 1), generator=gen)
        docs = (torch.rand(3, LENGTH + 1, generator=gen) < 0.15).long().cumsum(1)
        learn = torch.rand(3, LENGTH, generator=gen) < (0.9, 0.3)[part]
        learn &= docs[:, 1:] == docs[:, :-1]
        micro.append((ids[:, :-1], docs[:, :-1], ids[:, 1:].masked_fill(~learn, -100)))
    num_items = sum((labels != -100).sum() for _, _, labels in micro)  # <- accumulation_mean
    total = 0.0
    optimizer.zero_grad()  # <- zero_grad_in_loop
    for ids, docs, labels in micro:
        logits = model(ids, docs)
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1), reduction="sum") / num_items  # <- accumulation_mean
        loss.backward()  # <- zero_grad_in_loop
        total += loss.item()
    optimizer.step()
    losses.append(total)
print(losses)
