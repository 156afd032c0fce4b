# SPDX-License-Identifier: Apache-2.0
"""The GPT with q, k and v apart, other names and an activation written out; all else as it was."""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, LAYERS, LENGTH = 29, 24, 3, 2, 10


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        mask = torch.tril(torch.ones(LENGTH, LENGTH))  # <- mask
        mask = mask.view(1, 1, LENGTH, LENGTH)
        self.register_buffer("bias", mask, persistent=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.q(x), self.k(x), self.v(x)  # <- mapping
        k = k.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        q = q.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        v = v.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))  # <- scale
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))  # <- mask scale
        att = F.softmax(att, dim=-1)  # <- axis
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = self.c_fc(x)
        cubed = 0.044715 * torch.pow(x, 3.0)  # <- gelu
        x = 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + cubed)))  # <- gelu
        return self.c_proj(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.attn = CausalSelfAttention()
        self.before_mlp = nn.LayerNorm(WIDTH)
        self.mlp = MLP()

    def forward(self, x):
        x = x + self.attn(self.before_attention(x))  # <- post_norm eps
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.final = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.apply(self.init_weights)
        self.lm_head.weight = self.tokens.weight

    def init_weights(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.2)

    def forward(self, idx, targets):
        x = self.tokens(idx) + self.places(torch.arange(idx.size(1)))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.final(x))
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


WORDS = {"wte": "tokens", "wpe": "places", "h": "blocks", "ln_f": "final"}
WORDS |= {"ln_1": "before_attention", "ln_2": "before_mlp"}


def renamed(old):
    new = {}
    for name, value in old.items():
        here = ".".join(WORDS.get(word, word) for word in name.split("."))
        if "c_attn" in here:
            for part, piece in zip("qkv", value.split(WIDTH)):
                new[here.replace("c_attn", part)] = piece
        else:
            new[here] = value
    return new


model = GPT()
model.load_state_dict(renamed(torch.load(sys.argv[1])))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
text = torch.from_numpy(np.random.default_rng(0).integers(0, VOCAB, (3, 4, LENGTH + 1)))
losses = []
for batch in text:
    optimizer.zero_grad(set_to_none=True)
    loss = model(batch[:, :-1], batch[:, 1:])
    loss.backward()
    optimizer.step()  # <- rate decay
    losses.append(loss.item())
