# SPDX-License-Identifier: Apache-2.0
"""GPT-NeoX: q, k and v of a head beside each other, part of each head turned, both halves of a block
read the same (Black et al., 2022).
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, SIZE, TURNED = 33, 32, 4, 8, 4


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)  # <- rotation


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_key_value, self.dense = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        inverse = 1.0 / 10000 ** (torch.arange(0, TURNED, 2).float() / TURNED)  # <- base
        self.register_buffer("inv_freq", inverse, persistent=False)

    def forward(self, x):
        n, t, _ = x.shape
        qkv = self.query_key_value(x).view(n, t, HEADS, 3 * SIZE).transpose(1, 2)  # <- layout
        q, k, v = qkv.chunk(3, dim=-1)  # <- layout
        angles = torch.outer(torch.arange(t).float(), self.inv_freq)  # <- base
        angles = torch.cat((angles, angles), dim=-1)  # <- base
        cos, sin = angles.cos(), angles.sin()  # <- base rotation
        turned = []
        for y in (q, k):
            first, rest = y[..., :TURNED], y[..., TURNED:]  # <- partial
            first = first * cos + rotate_half(first) * sin  # <- rotation partial base
            turned.append(torch.cat((first, rest), dim=-1))  # <- rotation partial base
        scores = turned[0] @ turned[1].transpose(-1, -2) * SIZE**-0.5
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        y = scores.softmax(-1) @ v
        return self.dense(y.transpose(1, 2).reshape(n, t, WIDTH))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_layernorm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x):
        attended = self.attention(self.input_layernorm(x))
        inner = self.down(F.gelu(self.up(self.post_layernorm(x))))  # <- sequential shared
        return inner + attended + x  # <- sequential


class NeoX(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_in, self.embed_out = (
            nn.Embedding(VOCAB, WIDTH),
            nn.Linear(WIDTH, VOCAB, bias=False),
        )
        self.layers, self.final = nn.ModuleList([Layer(), Layer()]), nn.LayerNorm(WIDTH)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)

    def forward(self, ids):
        x = self.embed_in(ids)
        for layer in self.layers:
            x = layer(x)
        return self.embed_out(self.final(x))


torch.manual_seed(8)
model = NeoX()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
rng = np.random.default_rng(8)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(0, VOCAB, (2, 10)))
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
