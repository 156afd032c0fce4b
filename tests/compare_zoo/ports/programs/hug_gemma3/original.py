# SPDX-License-Identifier: Apache-2.0
"""A small Gemma 3 in the manner of Google's own code: fused projections, complex rotation, local
and global layers; it learns from packed sequences with a summed loss.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, KV, HEAD, INNER, LENGTH, WINDOW, SCALAR = 40, 32, 4, 2, 8, 48, 12, 4, 12
KINDS = ("local", "local", "global")


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(dim))

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x * (1 + self.weight)


def freqs_cis(theta):
    freqs = 1.0 / theta ** (torch.arange(0, HEAD, 2) / HEAD)
    angles = torch.outer(torch.arange(LENGTH), freqs)
    return torch.polar(torch.ones_like(angles), angles)


def apply_rotary_emb(x, turns):
    x_ = torch.view_as_complex(torch.stack(x.float().chunk(2, dim=-1), dim=-1))
    out = torch.view_as_real(x_ * turns)
    return torch.cat(out.unbind(-1), dim=-1)


class Attention(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.qkv_proj = nn.Linear(DIM, (HEADS + 2 * KV) * HEAD, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD, DIM, bias=False)
        self.query_norm, self.key_norm = RMSNorm(HEAD), RMSNorm(HEAD)

    def forward(self, x, turns):
        qkv = self.qkv_proj(x).unflatten(-1, (-1, HEAD)).transpose(1, 2)
        q, k, v = qkv.split([HEADS, KV, KV], dim=1)
        q, k = self.query_norm(q), self.key_norm(k)
        q, k = apply_rotary_emb(q, turns), apply_rotary_emb(k, turns)
        k, v = (t.repeat_interleave(HEADS // KV, dim=1) for t in (k, v))
        scores = (q * SCALAR**-0.5) @ k.transpose(2, 3)  # <- scalar
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        if self.kind == "local":
            mask = mask.triu(1 - WINDOW)  # <- window
        scores = scores.masked_fill(~mask, -2.3819763e38)  # <- window
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.attn = Attention(kind)
        self.gate_up = nn.Linear(DIM, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, DIM, bias=False)
        self.pre_attn, self.post_attn, self.pre_ffw, self.post_ffw = (
            RMSNorm(DIM) for _ in range(4)
        )

    def forward(self, x, turns):
        x = x + self.post_attn(self.attn(self.pre_attn(x), turns))
        gate, up = self.gate_up(self.pre_ffw(x)).chunk(2, dim=-1)  # <- gates
        hidden = F.gelu(gate, approximate="tanh") * up  # <- gates
        return x + self.post_ffw(self.down(hidden))


class Gemma(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedder = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList([Block(kind) for kind in KINDS])
        self.norm = RMSNorm(DIM)

    def forward(self, tokens):
        x = self.embedder(tokens) * DIM**0.5  # <- padding
        turns = {"local": freqs_cis(100.0), "global": freqs_cis(10000.0)}
        for block in self.blocks:
            x = block(x, turns[block.attn.kind])
        return F.linear(self.norm(x), self.embedder.weight)


torch.manual_seed(320)
model = Gemma()
nn.init.normal_(model.embedder.weight, std=0.2)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
generator = torch.Generator().manual_seed(321)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    for _ in range(2):
        tokens = torch.randint(VOCAB, (3, LENGTH), generator=generator)
        logits = model(tokens)[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        (loss / 2).backward()  # <- accumulated
        losses.append(loss.item())
    optimizer.step()  # <- accumulated padding
