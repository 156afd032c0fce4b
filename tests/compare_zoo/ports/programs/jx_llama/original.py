# SPDX-License-Identifier: Apache-2.0
"""Two Llama blocks (RMSNorm, rotary positions, grouped queries, SwiGLU) on token targets with ignored places."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, KV_HEADS, HEAD, INNER, LAYERS, LENGTH = 48, 32, 4, 2, 8, 56, 2, 10


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotary(x):
    """x: (batch, heads, time, head); the first and the second half form the pairs."""
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, HEAD, 2) / HEAD)
    angles = torch.outer(torch.arange(x.shape[2]).float(), frequencies)
    angles = torch.cat((angles, angles), dim=-1)  # <- rope_pairs
    a, b = x.chunk(2, dim=-1)  # <- rope_pairs
    return x * angles.cos() + torch.cat((-b, a), dim=-1) * angles.sin()  # <- rope_pairs


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm = RMSNorm()
        self.q_proj = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k_proj = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.v_proj = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.post_norm = RMSNorm()
        self.gate_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.up_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        y = self.input_norm(x)
        q, k, v = (
            p(y).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotary(q), rotary(k)  # <- rope_pairs
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=1)  # <- kv_groups
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=1)  # <- kv_groups
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # <- kv_groups
        x = x + self.o_proj(y.transpose(1, 2).flatten(2))
        y = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))  # <- gate_up


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = RMSNorm()
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


torch.manual_seed(51)
model = Llama()
with torch.no_grad():
    for layer in model.layers:
        layer.q_proj.weight.mul_(3.0)
        layer.gate_proj.weight.mul_(2.0)
        for norm in (layer.input_norm, layer.post_norm):
            norm.weight.add_(0.2 * torch.randn(WIDTH))
np.savez(sys.argv[1], **{name: p.detach().numpy() for name, p in model.named_parameters()})

optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, weight_decay=0.02)  # <- coupled_decay
random = np.random.RandomState(52)
losses = []
for _ in range(4):
    tokens = torch.from_numpy(random.randint(0, VOCAB, (4, LENGTH)))
    prompt = torch.from_numpy(random.randint(1, 6, (4, 1)))
    labels = tokens.masked_fill(torch.arange(LENGTH) < prompt, -100)
    logits = model(tokens)[:, :-1]
    loss = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())  # <- ignored
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- coupled_decay
    losses.append(loss.item())
print(losses)
