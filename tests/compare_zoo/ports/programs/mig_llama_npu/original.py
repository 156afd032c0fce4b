# SPDX-License-Identifier: Apache-2.0
"""A GPU-style Llama with grouped queries: heads before positions, complex rotations, sdpa, AdamW."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, KV_HEADS, FFN, LAYERS, SEQ, PAD = 48, 32, 4, 2, 56, 2, 10, 0
HEAD = DIM // HEADS


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)  # <- epsilon
        return x * self.weight  # <- epsilon


def rotation(length):
    freqs = 1.0 / (10000.0 ** (torch.arange(0, HEAD, 2).float() / HEAD))
    angles = torch.outer(torch.arange(length).float(), freqs)
    return torch.polar(torch.ones_like(angles), angles)  # (L, HEAD / 2)


def rotate(x, freqs_cis):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))  # <- interleaved
    return torch.view_as_real(pairs * freqs_cis).flatten(3)  # <- interleaved


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, HEADS * HEAD, bias=False)
        self.wk = nn.Linear(DIM, KV_HEADS * HEAD, bias=False)
        self.wv = nn.Linear(DIM, KV_HEADS * HEAD, bias=False)
        self.wo = nn.Linear(HEADS * HEAD, DIM, bias=False)

    def forward(self, x, freqs_cis, mask):
        b, s, _ = x.shape
        q = rotate(self.wq(x).view(b, s, HEADS, HEAD).transpose(1, 2), freqs_cis)
        k = rotate(self.wk(x).view(b, s, KV_HEADS, HEAD).transpose(1, 2), freqs_cis)
        v = self.wv(x).view(b, s, KV_HEADS, HEAD).transpose(1, 2)
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=1)  # <- groups
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=1)  # <- groups
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # <- groups
        return self.wo(out.transpose(1, 2).reshape(b, s, -1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(), RMSNorm()
        self.attention = Attention()
        self.w1 = nn.Linear(DIM, FFN, bias=False)
        self.w2 = nn.Linear(FFN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, FFN, bias=False)

    def forward(self, x, freqs_cis, mask):
        x = x + self.attention(self.attention_norm(x), freqs_cis, mask)
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))  # <- gate


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.output = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        size = tokens.shape[1]
        mask = torch.ones(size, size, dtype=torch.bool).tril()
        mask = mask & (tokens != PAD)[:, None, None, :]
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, rotation(size), mask)
        return self.output(self.norm(h))


torch.manual_seed(101)
model = Llama()
with torch.no_grad():
    model.tok_embeddings.weight.mul_(0.04)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.add_(0.2 * torch.randn(DIM))
torch.save(model.state_dict(), sys.argv[1])

decay = [p for p in model.parameters() if p.dim() > 1]
plain = [p for p in model.parameters() if p.dim() == 1]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
    lr=5e-3,
    betas=(0.9, 0.95),
    eps=1e-4,
)  # <- decoupled
generator = torch.Generator().manual_seed(102)
losses = []
for step in range(4):
    tokens = torch.randint(1, VOCAB, (3, SEQ + 1), generator=generator)
    tokens[1, -3:] = PAD
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=PAD)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- decoupled
    losses.append(loss.item())
