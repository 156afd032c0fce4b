# SPDX-License-Identifier: Apache-2.0
"""Greedy continuation of token prompts with a small grouped-query decoder; the whole prefix is
run again at every step (reference implementation, no cache)."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, KV_HEADS, LAYERS, CAP = 67, 48, 4, 2, 2, 12.0
HEAD_DIM = DIM // HEADS


def rotary_table(length, theta=10000.0):
    inv = 1.0 / theta ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
    angle = torch.outer(torch.arange(length).float(), inv)  # <- offset
    return torch.polar(torch.ones_like(angle), angle)  # <- offset


def rotate(x, table):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table[:, None]).flatten(3)  # <- offset


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.3 * torch.randn(dim))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.wk = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.wv = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.wo = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x, table):
        b, t, _ = x.shape
        q = rotate(self.wq(x).view(b, t, HEADS, HEAD_DIM), table)
        k = rotate(self.wk(x).view(b, t, KV_HEADS, HEAD_DIM), table)
        v = self.wv(x).view(b, t, KV_HEADS, HEAD_DIM)
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=2)  # <- grouping
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=2)  # <- grouping
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # <- causal grouping
        return self.wo(out.transpose(1, 2).reshape(b, t, DIM))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, 96, bias=False)
        self.w2 = nn.Linear(96, DIM, bias=False)
        self.w3 = nn.Linear(DIM, 96, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # <- gating


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(DIM), RMSNorm(DIM)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x, table):
        x = x + self.attention(self.attention_norm(x), table)
        return x + self.feed_forward(self.ffn_norm(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = RMSNorm(DIM)
        self.output = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        table = rotary_table(tokens.shape[1])
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, table)
        logits = self.output(self.norm(h))
        return CAP * torch.tanh(logits / CAP)  # <- softcap


torch.manual_seed(0)
model = Decoder().eval()
for name, p in model.named_parameters():
    if p.dim() == 2 and "emb" not in name:
        nn.init.normal_(p, std=1.6 / p.shape[1] ** 0.5)
torch.save(model.state_dict(), sys.argv[1])

tokens = torch.randint(0, VOCAB, (3, 8), generator=torch.Generator().manual_seed(21))
losses = []
with torch.no_grad():
    for _ in range(5):
        last = model(tokens)[:, -1]
        nxt = last.argmax(-1)
        losses.append(F.cross_entropy(last, nxt).item())
        tokens = torch.cat([tokens, nxt[:, None]], dim=1)
print(losses)
