# SPDX-License-Identifier: Apache-2.0
"""Miniature llama: RMSNorm, rotate-half RoPE, grouped-query attention, SwiGLU, tied embedding;
padded batches."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

V, DIM, NH, NKV, LAYERS, PAD = 40, 24, 4, 2, 2, 0
HD = DIM // NH


def rope_tables(length):
    inv = 1.0 / (100.0 ** (torch.arange(0, HD, 2).float() / HD))  # <- rope_base
    ang = torch.outer(torch.arange(length).float(), inv)  # <- rope_base
    ang = torch.cat([ang, ang], -1)
    return ang.cos(), ang.sin()


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(DIM, NH * HD, bias=False)
        self.k_proj = nn.Linear(DIM, NKV * HD, bias=False)
        self.v_proj = nn.Linear(DIM, NKV * HD, bias=False)
        self.o_proj = nn.Linear(NH * HD, DIM, bias=False)

    def forward(self, x, cos, sin):
        B, L, _ = x.shape
        q = self.q_proj(x).view(B, L, NH, HD).transpose(1, 2)
        k = self.k_proj(x).view(B, L, NKV, HD).transpose(1, 2)
        v = self.v_proj(x).view(B, L, NKV, HD).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = k.repeat_interleave(NH // NKV, 1), v.repeat_interleave(NH // NKV, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # <- doc_mask
        return self.o_proj(out.transpose(1, 2).reshape(B, L, -1))


class MLP(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gate_proj = nn.Linear(DIM, hidden, bias=False)
        self.up_proj = nn.Linear(DIM, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, DIM, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm, self.post_norm = nn.RMSNorm(DIM, eps=1e-5), nn.RMSNorm(DIM, eps=1e-5)
        self.self_attn, self.mlp = Attention(), MLP()

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_norm(x), cos, sin)
        return x + self.mlp(self.post_norm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(V, DIM)
        nn.init.normal_(self.embed_tokens.weight, std=0.2)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(DIM, eps=1e-5)
        self.lm_head = nn.Linear(DIM, V, bias=False)
        self.lm_head.weight = self.embed_tokens.weight  # <- tied_grad

    def forward(self, ids):
        cos, sin = rope_tables(ids.shape[1])
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


def get_batch(g):
    lengths = torch.randint(4, 13, (6,), generator=g)
    ids = torch.randint(1, V, (6, 12), generator=g)
    ids[torch.arange(12)[None] >= lengths[:, None]] = PAD
    return ids


torch.manual_seed(0)
model = Llama()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.95), eps=1e-6,
                             weight_decay=0.01, amsgrad=True)
scheduler = torch.optim.lr_scheduler.LinearLR(  # <- warm_start
    optimizer, start_factor=0.25, total_iters=3)  # <- warm_start
g = torch.Generator().manual_seed(77)
losses = []
for _ in range(5):
    ids = get_batch(g)
    inputs, targets = ids[:, :-1], ids[:, 1:]
    n_tokens = (targets != PAD).sum()
    optimizer.zero_grad()
    running = 0.0
    for chunk in range(3):                       # gradient accumulation over pairs of rows
        rows = slice(2 * chunk, 2 * chunk + 2)
        logits = model(inputs[rows])
        t = targets[rows]
        loss = F.cross_entropy(logits.transpose(1, 2), t, ignore_index=PAD,
                               reduction="sum") / n_tokens
        z = logits.logsumexp(-1)[t != PAD].square().sum() / n_tokens  # <- lse_square
        total = loss + 1e-3 * z  # <- lse_square
        total.backward()  # <- tied_grad
        running += total.item()
    optimizer.step()  # <- tied_grad warm_start
    scheduler.step()  # <- warm_start
    losses.append(running)
print(losses)
