# SPDX-License-Identifier: Apache-2.0
"""A Gemma (2024) of two layers, eager and written out: norms of one plus a weight, scaled embeddings
that are also the head, grouped queries in a sliding window, GeGLU, capped logits, two micro-batches.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, LAYERS, WINDOW, CAP = 37, 16, 4, 2, 4, 24, 2, 4, 6.0
BATCH, LENGTH, IGNORED = 4, 11, -100


class GemmaRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.randn(dim) * 0.3)

    def forward(self, x):
        output = x.float() * torch.rsqrt(
            x.float().pow(2).mean(-1, keepdim=True) + self.eps
        )  # <- scaled
        output = output * (1.0 + self.weight.float())  # <- plus_one
        return output.type_as(x)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


class GemmaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x, cos, sin, mask):
        b, n, _ = x.shape
        q = self.q_proj(x).view(b, n, HEADS, HEAD_DIM).transpose(1, 2)
        k = self.k_proj(x).view(b, n, KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = self.v_proj(x).view(b, n, KV_HEADS, HEAD_DIM).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin  # <- precision
        k = k * cos + rotate_half(k) * sin  # <- precision
        k = k[:, :, None].expand(-1, -1, HEADS // KV_HEADS, -1, -1).flatten(1, 2)  # <- groups
        v = v[:, :, None].expand(-1, -1, HEADS // KV_HEADS, -1, -1).flatten(1, 2)  # <- groups
        scores = q @ k.transpose(2, 3) / math.sqrt(HEAD_DIM) + mask  # <- window
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(b, n, -1))


class GemmaMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(DIM, HIDDEN, bias=False)
        self.up_proj = nn.Linear(DIM, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        gate = F.gelu(self.gate_proj(x), approximate="tanh")  # <- halves
        return self.down_proj(gate * self.up_proj(x))


class GemmaLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = GemmaAttention(), GemmaMLP()
        self.input_layernorm = GemmaRMSNorm(DIM)
        self.post_attention_layernorm = GemmaRMSNorm(DIM)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class GemmaForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(GemmaLayer() for _ in range(LAYERS))
        self.norm = GemmaRMSNorm(DIM)

    def rotary(self, n):
        inv_freq = 1.0 / (10000.0 ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
        freqs = torch.arange(n).float()[:, None] * inv_freq
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos(), emb.sin()  # <- precision

    def forward(self, ids):
        n = ids.shape[1]
        x = self.embed_tokens(ids) * torch.tensor(DIM**0.5)  # <- scaled
        cos, sin = self.rotary(n)
        behind = torch.arange(n)[:, None] - torch.arange(n)[None, :]
        hidden = (behind < 0) | (behind >= WINDOW)  # <- window
        mask = torch.zeros(n, n).masked_fill(hidden, torch.finfo(torch.float32).min)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        logits = F.linear(self.norm(x), self.embed_tokens.weight)
        return CAP * torch.tanh(logits / CAP)  # <- capped


torch.manual_seed(173)
model = GemmaForCausalLM()
nn.init.normal_(model.embed_tokens.weight, std=0.3)
for layer in model.layers:
    nn.init.normal_(layer.self_attn.q_proj.weight, std=0.5)
    nn.init.normal_(layer.self_attn.k_proj.weight, std=0.5)
torch.save(model.state_dict(), sys.argv[1])
decay = [p for name, p in model.named_parameters() if "norm" not in name]
no_decay = [p for name, p in model.named_parameters() if "norm" in name]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],  # <- plain
    lr=4e-3,
    betas=(0.9, 0.95),
)
rng = np.random.default_rng(179)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    text = torch.from_numpy(rng.integers(1, VOCAB, (BATCH, LENGTH + 1)))
    ends = torch.from_numpy(rng.integers(4, LENGTH + 1, (BATCH, 1)))
    labels = text[:, 1:].masked_fill(torch.arange(LENGTH) >= ends, IGNORED)
    tokens = (labels != IGNORED).sum()
    total = 0.0
    for ids, wanted in zip(text[:, :-1].chunk(2), labels.chunk(2)):
        logits = model(ids).flatten(0, 1)
        loss = F.cross_entropy(  # <- capped
            logits, wanted.flatten(), ignore_index=IGNORED, reduction="sum"
        )  # <- micro
        loss = loss / tokens  # <- micro
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- clipped
    optimizer.step()  # <- plain
    losses.append(total)
