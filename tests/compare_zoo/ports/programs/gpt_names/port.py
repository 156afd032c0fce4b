# SPDX-License-Identifier: Apache-2.0
"""The GPT under other names, in other classes, another initialisation loaded over."""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, LAYERS, LENGTH = 29, 24, 3, 2, 10


class MaskedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        mask = torch.tril(torch.ones(LENGTH, LENGTH))  # <- mask
        mask = mask.view(1, 1, LENGTH, LENGTH)
        self.register_buffer("bias", mask, persistent=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(WIDTH, dim=2)  # <- mapping post_norm
        k = k.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        q = q.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        v = v.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))  # <- scale
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))  # <- mask scale
        att = F.softmax(att, dim=-1)  # <- axis
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.gelu = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = self.c_fc(x)
        x = self.gelu(x)  # <- gelu
        return self.c_proj(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.mixing = MaskedAttention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.thinking = Inner()

    def forward(self, x):
        x = x + self.mixing(self.ln_1(x))  # <- post_norm eps
        return x + self.thinking(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Module()
        self.body.tokens = nn.Embedding(VOCAB, WIDTH)
        self.body.places = nn.Embedding(LENGTH, WIDTH)
        self.body.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.body.final = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.apply(self.init_weights)
        self.lm_head.weight = self.body.tokens.weight

    def init_weights(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.xavier_uniform_(module.weight)

    def forward(self, idx, targets):
        x = self.body.tokens(idx) + self.body.places(torch.arange(idx.size(1)))
        for block in self.body.blocks:
            x = block(x)
        logits = self.lm_head(self.body.final(x))
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


WORDS = {"wte": "body.tokens", "wpe": "body.places", "h": "body.blocks", "ln_f": "body.final"}
WORDS |= {"attn": "mixing", "mlp": "thinking"}


def renamed(old):
    return {".".join(WORDS.get(word, word) for word in name.split(".")): old[name] for name in old}


torch.manual_seed(4321)
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
