# SPDX-License-Identifier: Apache-2.0
"""FT-Transformer as Gorishniy et al. (2021) have it: a token for each numerical and categorical
feature and one for the class, blocks of pre-norm attention and ReGLU, a regression.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

N_NUM, CARDINALITIES, D_TOKEN, N_HEADS, N_BLOCKS, D_HIDDEN = 5, [4, 3, 6], 16, 4, 2, 20
ROWS, BATCH = 48, 16


class FeatureTokenizer(nn.Module):
    def __init__(self):
        super().__init__()
        offsets = torch.tensor([0, *CARDINALITIES[:-1]]).cumsum(0)
        self.register_buffer("category_offsets", offsets)
        self.category_embeddings = nn.Embedding(sum(CARDINALITIES), D_TOKEN)
        self.weight = nn.Parameter(torch.empty(N_NUM + 1, D_TOKEN))
        self.bias = nn.Parameter(torch.empty(N_NUM + len(CARDINALITIES), D_TOKEN))
        for parameter in (self.weight, self.bias, self.category_embeddings.weight):
            nn.init.kaiming_uniform_(parameter, a=math.sqrt(5))

    def forward(self, x_num, x_cat):
        x_num = torch.cat([torch.ones(len(x_num), 1), x_num], dim=1)  # [CLS]  # <- spread
        x = self.weight[None] * x_num[:, :, None]
        embedded = self.category_embeddings(x_cat + self.category_offsets[None])  # <- offsets
        x = torch.cat([x, embedded], dim=1)  # <- offsets
        bias = torch.cat([torch.zeros(1, D_TOKEN), self.bias])
        return x + bias[None]


class MultiheadAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_q = nn.Linear(D_TOKEN, D_TOKEN)
        self.W_k = nn.Linear(D_TOKEN, D_TOKEN)
        self.W_v = nn.Linear(D_TOKEN, D_TOKEN)
        self.W_out = nn.Linear(D_TOKEN, D_TOKEN)

    def _reshape(self, x):
        batch_size, n_tokens, _ = x.shape
        x = x.reshape(batch_size, n_tokens, N_HEADS, D_TOKEN // N_HEADS)
        return x.transpose(1, 2).reshape(batch_size * N_HEADS, n_tokens, -1)

    def forward(self, x_q, x_kv):
        q, k, v = self.W_q(x_q), self.W_k(x_kv), self.W_v(x_kv)  # <- heads
        q, k, v = self._reshape(q), self._reshape(k), self._reshape(v)  # <- heads
        attention = F.softmax(q @ k.transpose(1, 2) / math.sqrt(D_TOKEN // N_HEADS), dim=-1)
        x = attention @ v
        x = x.reshape(len(x_q), N_HEADS, -1, D_TOKEN // N_HEADS).transpose(1, 2)
        return self.W_out(x.reshape(len(x_q), -1, D_TOKEN))


def reglu(x):
    a, b = x.chunk(2, dim=-1)
    return a * F.relu(b)  # <- gated


class Block(nn.Module):
    def __init__(self, *, first):
        super().__init__()
        self.attention = MultiheadAttention()
        self.norm0 = None if first else nn.LayerNorm(D_TOKEN)
        self.norm1 = nn.LayerNorm(D_TOKEN)
        self.linear0 = nn.Linear(D_TOKEN, 2 * D_HIDDEN)
        self.linear1 = nn.Linear(D_HIDDEN, D_TOKEN)

    def forward(self, x, *, last):
        x_residual = x if self.norm0 is None else self.norm0(x)  # <- unnormed
        query = x_residual[:, :1] if last else x_residual
        x_residual = self.attention(query, x_residual)
        x = (x[:, :1] if last else x) + x_residual
        return x + self.linear1(reglu(self.linear0(self.norm1(x))))


class FTTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokenizer = FeatureTokenizer()
        self.layers = nn.ModuleList(Block(first=n == 0) for n in range(N_BLOCKS))
        self.last_normalization = nn.LayerNorm(D_TOKEN)
        self.head = nn.Linear(D_TOKEN, 1)

    def forward(self, x_num, x_cat):
        x = self.tokenizer(x_num, x_cat)
        for n, layer in enumerate(self.layers):
            x = layer(x, last=n + 1 == N_BLOCKS)
        x = F.relu(self.last_normalization(x[:, 0]))  # <- head
        return self.head(x).squeeze(-1)


def make_data():
    rng = np.random.default_rng(79)
    x_num = rng.lognormal(size=(ROWS, N_NUM))
    x_cat = np.stack([rng.integers(0, c, ROWS) for c in CARDINALITIES], axis=1)
    y = x_num[:, 0] * x_cat[:, 1] + x_num[:, 2] + rng.standard_normal(ROWS)
    return x_num, x_cat, y


x_num, x_cat, y = make_data()
x_num = np.log1p(x_num)
x_num = (x_num - x_num.mean(axis=0)) / x_num.std(axis=0)  # <- spread
y = (y - y.mean()) / y.std()
x_num, y = (torch.from_numpy(a.astype(np.float32)) for a in (x_num, y))
x_cat = torch.from_numpy(x_cat)
torch.manual_seed(83)
model = FTTransformer()
torch.save(model.state_dict(), sys.argv[1])
no_wd = ("tokenizer", ".norm", "bias")
decayed = [p for n, p in model.named_parameters() if not any(x in n for x in no_wd)]
plain = [p for n, p in model.named_parameters() if any(x in n for x in no_wd)]
groups = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)
loss_fn = nn.SmoothL1Loss(beta=0.5)
losses = []
for start in range(0, ROWS, BATCH):
    batch = slice(start, start + BATCH)
    optimizer.zero_grad()
    loss = loss_fn(model(x_num[batch], x_cat[batch]), y[batch])  # <- beta
    loss.backward()
    optimizer.step()  # <- untouched
    losses.append(loss.item())
