# SPDX-License-Identifier: Apache-2.0
"""A small Llama in the GPU manner: padded batches, RMSNorm written out, rotary by complex numbers,
two SwiGLU matrices, scaled_dot_product_attention, AdamW and clipping of torch.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, INNER, LAYERS = 50, 32, 4, 56, 2
HEAD = DIM // HEADS


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def precompute_freqs_cis(length):
    freqs = 1.0 / 10000.0 ** (torch.arange(0, HEAD, 2).float() / HEAD)  # <- frequencies
    angles = torch.outer(torch.arange(length).float(), freqs)  # <- frequencies
    return torch.polar(torch.ones_like(angles), angles)  # <- frequencies


def apply_rotary_emb(x, freqs_cis):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))  # <- rotary
    return torch.view_as_real(pairs * freqs_cis[:, None]).flatten(3)  # <- frequencies rotary


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, DIM, bias=False)  # <- rotary
        self.wk = nn.Linear(DIM, DIM, bias=False)  # <- rotary
        self.wv = nn.Linear(DIM, DIM, bias=False)
        self.wo = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x, freqs_cis):
        maps = (self.wq, self.wk, self.wv)
        q, k, v = (w(x).unflatten(-1, (HEADS, HEAD)) for w in maps)  # <- rotary
        q, k = (apply_rotary_emb(t, freqs_cis) for t in (q, k))  # <- frequencies rotary
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, INNER, bias=False)  # <- gate
        self.w2 = nn.Linear(INNER, DIM, bias=False)
        self.w3 = nn.Linear(DIM, INNER, bias=False)  # <- gate

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # <- gate


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = RMSNorm(), RMSNorm()

    def forward(self, x, freqs_cis):
        h = x + self.attention(self.attention_norm(x), freqs_cis)
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = RMSNorm()
        self.output = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        freqs_cis = precompute_freqs_cis(tokens.shape[1])  # <- frequencies
        for layer in self.layers:
            h = layer(h, freqs_cis)
        return self.output(self.norm(h))


torch.manual_seed(11)
model = Transformer()
torch.save(model.state_dict(), sys.argv[1])
decay = [p for p in model.parameters() if p.dim() > 1]
rest = [p for p in model.parameters() if p.dim() == 1]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=5e-3, betas=(0.9, 0.95), eps=1e-5)
generator = torch.Generator().manual_seed(12)
losses = []
for _ in range(4):
    tokens = torch.randint(1, VOCAB, (4, 11), generator=generator)
    lengths = torch.randint(5, 12, (4, 1), generator=generator)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]  # <- boundary
    targets = targets.masked_fill(torch.arange(1, 11) >= lengths, -100)  # <- boundary
    logits = model(inputs).flatten(0, 1)
    loss = F.cross_entropy(logits, targets.flatten())  # <- boundary
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- unscale
    optimizer.step()  # <- unscale
    losses.append(loss.item())
