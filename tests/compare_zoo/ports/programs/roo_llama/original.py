# SPDX-License-Identifier: Apache-2.0
"""Pretrain a very small Llama on a synthetic corpus with prompt-masked labels."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

VOCAB, DIM, LAYERS, HEADS, KV_HEADS, HIDDEN = 64, 32, 2, 4, 2, 48
SEQ, BATCH, STEPS, WARMUP = 16, 8, 5, 2
PEAK_LR, MIN_RATIO, MAX_NORM = 1e-2, 0.1, 0.5


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def precompute_freqs(dim, length, theta=10000.0):
    inv = 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim)
    angles = torch.outer(torch.arange(length).float(), inv)
    return torch.polar(torch.ones_like(angles), angles)


def apply_rotary(x, freqs):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))  # <- rope_layout
    return torch.view_as_real(pairs * freqs[None, :, None, :]).flatten(3)  # <- rope_layout


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.head_dim = DIM // HEADS
        self.wq = nn.Linear(DIM, HEADS * self.head_dim, bias=False)
        self.wk = nn.Linear(DIM, KV_HEADS * self.head_dim, bias=False)
        self.wv = nn.Linear(DIM, KV_HEADS * self.head_dim, bias=False)
        self.wo = nn.Linear(HEADS * self.head_dim, DIM, bias=False)

    def forward(self, x, freqs, mask):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, HEADS, self.head_dim)
        k = self.wk(x).view(b, t, KV_HEADS, self.head_dim)
        v = self.wv(x).view(b, t, KV_HEADS, self.head_dim)
        q, k = apply_rotary(q, freqs), apply_rotary(k, freqs)  # <- rope_layout
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=2)  # <- gqa_tiled
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=2)  # <- gqa_tiled
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.head_dim) + mask
        out = scores.softmax(-1) @ v
        return self.wo(out.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = RMSNorm(DIM)
        self.attention = Attention()
        self.ffn_norm = RMSNorm(DIM)
        self.feed_forward = FeedForward()

    def forward(self, x, freqs, mask):
        x = x + self.attention(self.attention_norm(x), freqs, mask)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = RMSNorm(DIM)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.15)

    def forward(self, tokens):
        t = tokens.shape[1]
        freqs = precompute_freqs(DIM // HEADS, t)
        mask = torch.full((t, t), float("-inf")).triu(1)
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, freqs, mask)
        return F.linear(self.norm(h), self.tok_embeddings.weight)


def lr_ratio(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_RATIO + (1 - MIN_RATIO) * 0.5 * (1 + math.cos(math.pi * done))


torch.manual_seed(11)
model = Llama()
torch.save(model.state_dict(), sys.argv[1])

generator = torch.Generator().manual_seed(1234)
corpus = torch.randint(0, VOCAB, (400,), generator=generator)

matrices = [p for p in model.parameters() if p.dim() >= 2]
gains = [p for p in model.parameters() if p.dim() < 2]  # <- decay_on_norms
groups = [{"params": matrices, "weight_decay": 0.3}, {"params": gains, "weight_decay": 0.0}]  # <- decay_on_norms
optimizer = torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.95), eps=1e-8)  # <- decay_on_norms
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_ratio)

losses = []
for step in range(STEPS):
    starts = torch.randint(0, len(corpus) - SEQ - 1, (BATCH,), generator=generator)
    prompt = torch.randint(0, SEQ - 2, (BATCH,), generator=generator)
    window = corpus[starts[:, None] + torch.arange(SEQ + 1)]
    inputs, labels = window[:, :-1], window[:, 1:].clone()
    labels[torch.arange(SEQ)[None] < prompt[:, None]] = -100
    logits = model(inputs)
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1), ignore_index=-100)  # <- micro_mean
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)  # <- clip_per_tensor
    optimizer.step()  # <- decay_on_norms
    scheduler.step()
    losses.append(loss.item())
print(losses)
