# SPDX-License-Identifier: Apache-2.0
"""Masked residues for an ESM-2 of one's own in the manner of its authors: time first, one product
per head and protein, masked embeddings dropped and the rest scaled up.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, PAD, CLS, EOS, MASK, WIDTH, HEADS, SIZE, INNER, LAYERS = 25, 1, 0, 2, 24, 24, 3, 8, 40, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH))

    def rotate(self, x):
        """x: head of a protein, place, channel."""
        speed = 10000.0 ** (-torch.arange(0, SIZE, 2) / SIZE)
        angle = torch.outer(torch.arange(x.shape[1]), speed)
        a, b = x.chunk(2, -1)
        sin, cos = angle.sin(), angle.cos()
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, x, padding):
        length, count, _ = x.shape
        q, k, v = (
            proj(x).view(length, count * HEADS, SIZE).transpose(0, 1)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = torch.bmm(self.rotate(q * SIZE**-0.5), self.rotate(k).transpose(1, 2))
        hidden = padding.repeat_interleave(HEADS, 0)[:, None]
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)  # <- padding
        return self.out_proj(torch.bmm(weights, v).transpose(0, 1).reshape(length, count, WIDTH))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = Attention()
        self.self_attn_layer_norm = nn.LayerNorm(WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.final_layer_norm = nn.LayerNorm(WIDTH)

    def forward(self, x, padding):
        x = x + self.self_attn(self.self_attn_layer_norm(x), padding)
        return x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))


class ESM2(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.emb_layer_norm_after = nn.LayerNorm(WIDTH)
        self.dense, self.layer_norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, tokens):
        padding, masked = tokens == PAD, tokens == MASK  # <- padding
        x = self.embed_tokens(tokens) * (~masked & ~padding)[..., None]  # <- token_dropout padding
        seen = masked.sum(1) / (~padding).sum(1)  # <- token_dropout padding
        x = x * ((1 - 0.15 * 0.8) / (1 - seen))[:, None, None]  # <- token_dropout
        x = x.transpose(0, 1)
        for layer in self.layers:
            x = layer(x, padding)
        x = self.emb_layer_norm_after(x).transpose(0, 1)  # <- last_norm
        x = self.layer_norm(F.gelu(self.dense(x)))
        return F.linear(x, self.embed_tokens.weight, self.bias)


torch.manual_seed(111)
model = ESM2()
with torch.no_grad():
    for weight in model.parameters():
        weight.add_(0.2 * torch.randn(weight.shape))
    model.embed_tokens.weight.mul_(0.5)
torch.save(model.state_dict(), sys.argv[1])
velocity = {p: torch.zeros_like(p) for p in model.parameters()}
generator = torch.Generator().manual_seed(112)
losses = []
for _ in range(4):
    tokens = torch.full((4, 14), PAD)
    for row, size in zip(tokens, torch.randint(7, 13, (4,), generator=generator).tolist()):
        protein = torch.randint(4, 24, (size,), generator=generator)
        row[: size + 2] = torch.cat((torch.tensor([CLS]), protein, torch.tensor([EOS])))
    chosen = (torch.rand(4, 14, generator=generator) < 0.25) & (tokens > 3)
    chosen[:, 1] = True
    logits = model(tokens.masked_fill(chosen, MASK))
    each = [F.cross_entropy(a[c], t[c]) for a, t, c in zip(logits, tokens, chosen)]  # <- by_protein
    loss = sum(each) / len(each)  # <- by_protein
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p, v in velocity.items():
            v.mul_(0.9).add_(p.grad)
            p.sub_(0.02 * (p.grad + 0.9 * v))  # <- nesterov
    losses.append(loss.item())
