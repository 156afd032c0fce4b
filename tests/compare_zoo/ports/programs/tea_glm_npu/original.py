# SPDX-License-Identifier: Apache-2.0
"""A prefix language model in the manner of ChatGLM2: interleaved rotary on half of each head, two
groups of keys, RMSNorm, SwiGLU; padded batches, two micro-batches a step.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, HIDDEN, HEADS, GROUPS, FFN, LAYERS, SIZE, LENGTH = 40, 32, 4, 2, 48, 2, 3, 10
HEAD = HIDDEN // HEADS


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(variance + 1e-5) * self.weight


def apply_rotary(x, angles):
    rotated, passed = x.chunk(2, dim=-1)  # <- permuted
    even, odd = rotated.unflatten(-1, (-1, 2)).unbind(-1)  # <- permuted
    cos, sin = angles.cos(), angles.sin()
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1)  # <- permuted
    return torch.cat([turned.flatten(-2), passed], dim=-1)


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_key_value = nn.Linear(HIDDEN, (HEADS + 2 * GROUPS) * HEAD)  # <- permuted
        self.dense = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x, angles, mask):
        b, s, _ = x.shape
        mixed = self.query_key_value(x).view(b, s, -1, HEAD).transpose(1, 2)  # <- permuted
        q, k, v = mixed.split([HEADS, GROUPS, GROUPS], dim=1)
        q, k = apply_rotary(q, angles), apply_rotary(k, angles)  # <- permuted
        k = k.unsqueeze(2).expand(-1, -1, HEADS // GROUPS, -1, -1).flatten(1, 2)  # <- groups
        v = v.unsqueeze(2).expand(-1, -1, HEADS // GROUPS, -1, -1).flatten(1, 2)  # <- groups
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # <- prefix groups
        return self.dense(y.transpose(1, 2).reshape(b, s, HIDDEN))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense_h_to_4h = nn.Linear(HIDDEN, 2 * FFN, bias=False)
        self.dense_4h_to_h = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        gate, up = self.dense_h_to_4h(x).chunk(2, dim=-1)
        return self.dense_4h_to_h(F.silu(gate) * up)


class GLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.norms = nn.ModuleList([RMSNorm() for _ in range(2 * LAYERS + 1)])
        self.attentions = nn.ModuleList([SelfAttention() for _ in range(LAYERS)])
        self.mlps = nn.ModuleList([MLP() for _ in range(LAYERS)])
        self.output_layer = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens, lengths, prefixes):
        s = torch.arange(tokens.size(1))
        freq = 1.0 / 10000 ** (torch.arange(0, HEAD // 2, 2) / (HEAD // 2))
        angles = s[:, None] * freq
        seen = (s[None, :] <= s[:, None]) | (s < prefixes[:, None])[:, None, :]  # <- prefix
        mask = (seen & (s < lengths[:, None])[:, None, :])[:, None]  # <- prefix
        x = self.embedding(tokens)
        for i in range(LAYERS):
            x = x + self.attentions[i](self.norms[2 * i](x), angles, mask)
            x = x + self.mlps[i](self.norms[2 * i + 1](x))
        return self.output_layer(self.norms[-1](x))


torch.manual_seed(61)
model = GLM()
torch.save(model.state_dict(), sys.argv[1])
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() <= 1]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others}]  # <- decayed
optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-3, weight_decay=0)  # <- decayed
generator = torch.Generator().manual_seed(62)
losses = []
for step in range(4):
    batches, count = [], 0
    for _ in range(2):
        tokens = torch.randint(0, VOCAB, (SIZE, LENGTH), generator=generator)
        lengths = torch.randint(6, LENGTH + 1, (SIZE,), generator=generator)
        prefixes = torch.randint(2, 5, (SIZE,), generator=generator)
        place = torch.arange(LENGTH)
        answer = (place >= prefixes[:, None]) & (place < lengths[:, None])
        labels = tokens.masked_fill(~answer, -100)[:, 1:]  # <- counted
        batches.append((tokens, lengths, prefixes, labels))
        count += int((labels != -100).sum())  # <- counted
    optimizer.zero_grad()
    total = 0.0
    for tokens, lengths, prefixes, labels in batches:
        logits = model(tokens, lengths, prefixes)[:, :-1].flatten(0, 1)
        loss = F.cross_entropy(logits, labels.flatten(), reduction="sum") / count  # <- counted
        loss.backward()
        total += loss.item()
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * 0.5 * (1 + math.cos(math.pi * step / 6))
    optimizer.step()  # <- decayed
    losses.append(total)
