# SPDX-License-Identifier: Apache-2.0
"""Performer as Choromanski et al. (2021) have it: attention by FAVOR+, positive features of fixed
random orthogonal projections in buffers, a masked model of proteins as the task.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TOKENS, MASK, DIM, HEADS, DEPTH, FEATURES = 24, 23, 16, 2, 2, 12
DIM_HEAD = DIM // HEADS
BATCH, LENGTH = 4, 12


def gaussian_orthogonal_random_matrix(nb_rows, nb_columns):
    blocks = []
    for _ in range(math.ceil(nb_rows / nb_columns)):
        q, _ = torch.linalg.qr(torch.randn(nb_columns, nb_columns))
        blocks.append(q.t())
    final_matrix = torch.cat(blocks)[:nb_rows]
    multiplier = torch.randn(nb_rows, nb_columns).norm(dim=1)
    return torch.diag(multiplier) @ final_matrix


def softmax_kernel(data, projection_matrix, is_query, eps=1e-4):
    data_normalizer = data.shape[-1] ** -0.25
    ratio = projection_matrix.shape[0] ** -0.5
    data_dash = data_normalizer * data @ projection_matrix.t()  # <- quarter
    diag_data = (data**2).sum(dim=-1, keepdim=True)  # <- diagonal
    diag_data = (diag_data / 2.0) * (data_normalizer**2)  # <- diagonal quarter
    if is_query:
        most = torch.amax(data_dash, dim=-1, keepdim=True).detach()
    else:
        most = torch.amax(data_dash, dim=(-1, -2), keepdim=True).detach()  # <- largest
    return ratio * (torch.exp(data_dash - diag_data - most) + eps)  # <- largest diagonal


def linear_attention(q, k, v):
    k_cumsum = k.sum(dim=-2)  # <- denominator
    D_inv = 1.0 / torch.einsum("...nd,...d->...n", q, k_cumsum)  # <- denominator
    context = torch.einsum("...nd,...ne->...de", k, v)
    return torch.einsum("...de,...nd,...n->...ne", context, q, D_inv)  # <- denominator


class FastAttention(nn.Module):
    def __init__(self):
        super().__init__()
        projection_matrix = gaussian_orthogonal_random_matrix(FEATURES, DIM_HEAD)
        self.register_buffer("projection_matrix", projection_matrix)

    def forward(self, q, k, v):
        q = softmax_kernel(q, self.projection_matrix, is_query=True)
        k = softmax_kernel(k, self.projection_matrix, is_query=False)
        return linear_attention(q, k, v)


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.fast_attention = FastAttention()
        self.to_q = nn.Linear(DIM, DIM, bias=False)
        self.to_k = nn.Linear(DIM, DIM, bias=False)
        self.to_v = nn.Linear(DIM, DIM, bias=False)
        self.to_out = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.to_q(x), self.to_k(x), self.to_v(x)
        q, k, v = (t.view(b, n, HEADS, DIM_HEAD).transpose(1, 2) for t in (q, k, v))
        out = self.fast_attention(q, k, v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, DIM))


class FeedForward(nn.Module):
    def __init__(self, mult=2):
        super().__init__()
        self.w1 = nn.Linear(DIM, DIM * mult)
        self.act = nn.GELU()
        self.w2 = nn.Linear(DIM * mult, DIM)

    def forward(self, x):
        return self.w2(self.act(self.w1(x)))


class PreNorm(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.fn = fn

    def forward(self, x):
        return self.fn(self.norm(x))


class PerformerLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_emb = nn.Embedding(TOKENS, DIM)
        self.pos_emb = nn.Embedding(LENGTH, DIM)
        self.layers = nn.ModuleList()
        for _ in range(DEPTH):
            pair = PreNorm(SelfAttention()), PreNorm(FeedForward())
            self.layers.append(nn.ModuleList(pair))
        self.norm = nn.LayerNorm(DIM)

    def forward(self, x):
        x = self.token_emb(x)
        x = x + self.pos_emb(torch.arange(x.shape[1]))
        for attend, feed in self.layers:
            x = x + attend(x)  # <- residual
            x = x + feed(x)
        return self.norm(x) @ self.token_emb.weight.t()


torch.manual_seed(43)
model = PerformerLM()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9)
rng = np.random.default_rng(47)
losses = []
for _ in range(3):
    protein = torch.from_numpy(rng.integers(0, MASK, (BATCH, LENGTH)))
    hidden = torch.from_numpy(rng.random((BATCH, LENGTH)) < 0.3)
    labels = protein.masked_fill(~hidden, -100)
    logits = model(protein.masked_fill(hidden, MASK))
    loss = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100)  # <- counted
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- second
    losses.append(loss.item())
