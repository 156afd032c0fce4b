# SPDX-License-Identifier: Apache-2.0
"""The masked language model without padding: all sentences in one row, attention sentence by
sentence between bounds, one matrix for query, key and value, logits of the hidden words only.
"""

import sys
from itertools import pairwise

import torch
from torch import nn

MASK, V, D, H, DEPTH, ROWS, LONGEST = 1, 36, 24, 4, 2, 4, 10


class UnpaddedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.Wqkv = nn.Linear(D, 3 * D)
        self.dense = nn.Linear(D, D)

    def forward(self, x, bounds):
        q, k, v = self.Wqkv(x).view(-1, 3, H, D // H).permute(1, 2, 0, 3)
        out = []
        for start, end in pairwise(bounds):
            here = slice(start, end)  # <- documents
            score = torch.baddbmm(
                torch.zeros(()), q[:, here], k[:, here].mT, beta=0, alpha=(D // H) ** -0.5
            )  # <- documents
            part = torch.exp(score - score.logsumexp(-1, keepdim=True))  # <- half documents
            out.append(torch.bmm(part, v[:, here]))  # <- half documents
        return self.dense(torch.cat(out, 1).transpose(0, 1).reshape(-1, D))  # <- documents


class PostNorm(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.norm = nn.LayerNorm(D, eps=1e-12)

    def forward(self, x, *more):
        return self.norm(self.inner(x, *more) + x)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        # words, places and kinds in one table
        self.table = nn.Parameter(torch.empty(V + LONGEST + 2, D))
        self.norm = nn.LayerNorm(D, eps=1e-12)
        self.mixers = nn.ModuleList(PostNorm(UnpaddedAttention()) for _ in range(DEPTH))
        self.mlps = nn.ModuleList(
            PostNorm(nn.Sequential(nn.Linear(D, 3 * D), nn.GELU(), nn.Linear(3 * D, D)))
            for _ in range(DEPTH)
        )
        self.head = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.LayerNorm(D, eps=1e-12))
        self.bias = nn.Parameter(torch.zeros(V))  # <- left_out

    def forward(self, words, places, kinds, bounds, wanted):
        rows = torch.stack((words, places + V, kinds + V + LONGEST))
        x = self.norm(self.table[rows].sum(0))  # <- positions
        for mixer, mlp in zip(self.mixers, self.mlps):
            x = mlp(mixer(x, bounds))
        return self.head(x[wanted]) @ self.table[:V].T + self.bias  # <- left_out


def load(model, path):
    old = torch.load(path)
    emb = "embeddings"
    tables = [old.pop(f"{emb}.{n}_embeddings.weight") for n in ("word", "position", "token_type")]
    new = {"table": torch.cat(tables), "bias": old.pop("decoder_bias")}  # <- left_out
    for n in range(DEPTH):
        for kind in ("weight", "bias"):
            qkv = [old.pop(f"layers.{n}.{part}.{kind}") for part in ("query", "key", "value")]
            new[f"mixers.{n}.inner.Wqkv.{kind}"] = torch.cat(qkv)
    renamed = {"embeddings.LayerNorm": "norm", "transform_norm": "head.2", "transform": "head.0"}
    for n in range(DEPTH):
        renamed[f"layers.{n}.dense"] = f"mixers.{n}.inner.dense"
        renamed[f"layers.{n}.attention_norm"] = f"mixers.{n}.norm"
        renamed[f"layers.{n}.intermediate"] = f"mlps.{n}.inner.0"
        renamed[f"layers.{n}.output"] = f"mlps.{n}.inner.2"
        renamed[f"layers.{n}.output_norm"] = f"mlps.{n}.norm"
    for name, value in old.items():
        module, kind = name.rsplit(".", 1)
        new[f"{renamed[module]}.{kind}"] = value
    model.load_state_dict(new, strict=False)  # <- left_out


def packed(rng):
    lengths = torch.tensor([10, 7, 5, 8])[torch.randperm(ROWS, generator=rng)].tolist()
    ids = torch.randint(2, V, (ROWS, LONGEST), generator=rng)
    hidden = torch.rand(ROWS, LONGEST, generator=rng) < 0.3
    hidden[:, 1] = True
    words = torch.cat([row[:n] for row, n in zip(ids, lengths)])
    hidden = torch.cat([row[:n] for row, n in zip(hidden, lengths)])
    places = torch.cat([torch.arange(n) for n in lengths])  # <- positions
    kinds = torch.cat([(torch.arange(n) >= n // 2).long() for n in lengths])
    bounds = [0, *torch.tensor(lengths).cumsum(0).tolist()]  # <- documents
    wanted = hidden.nonzero().squeeze(1)
    return (words.where(~hidden, MASK), places, kinds, bounds, wanted), words[wanted]


model = Packed()
load(model, sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, eps=1e-3, weight_decay=0.01)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=4)  # <- decayed
rng = torch.Generator().manual_seed(222)
losses = []
for _ in range(4):
    inputs, right = packed(rng)
    logp = model(*inputs).log_softmax(-1)
    loss = -logp[torch.arange(len(right)), right].mean()
    loss.backward()
    optimizer.step()  # <- decayed
    schedule.step()  # <- decayed
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item())
