# SPDX-License-Identifier: Apache-2.0
"""The same Longformer with memory that grows with its length only: a window of keys cut for each
query, the global tokens in columns beside it and in rows of their own, one tensor a projection.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as fn

WORDS, WIDTH, N_HEADS, DEPTH, REACH, FIRST, NOTHING, LONGEST = 41, 16, 2, 2, 2, 2, 1, 14
HEAD = WIDTH // N_HEADS


def around(x, fill=0.0):
    """(..., tokens, size) to (..., tokens, size, 2 * REACH + 1)."""
    return fn.pad(x, (0, 0, REACH, REACH), value=fill).unfold(-2, 2 * REACH + 1, 1)  # <- window


class BandedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Linear(WIDTH, 3 * WIDTH)
        self.everywhere = nn.Linear(WIDTH, 3 * WIDTH)

    def heads(self, linear, x):
        return linear(x).unflatten(-1, (3, N_HEADS, HEAD)).permute(2, 0, 3, 1, 4)

    def forward(self, x, there):
        q, k, v = self.heads(self.local, x)
        place = torch.arange(x.shape[1])
        open_ = there & (place >= FIRST)  # <- twice
        open_ = around(open_.float()[..., None]).squeeze(-2) > 0  # <- twice window
        band = torch.einsum("bhnd,bhndw->bhnw", q, around(k))  # <- window
        band = torch.where(open_[:, None], band, -torch.inf)  # <- twice
        columns = torch.einsum("bhnd,bhgd->bhng", q, k[:, :, :FIRST])
        weights = (torch.cat([columns, band], dim=-1) * HEAD**-0.5).softmax(-1)
        read = torch.einsum("bhng,bhgd->bhnd", weights[..., :FIRST], v[:, :, :FIRST])
        read = read + torch.einsum("bhnw,bhndw->bhnd", weights[..., FIRST:], around(v))
        gq, gk, gv = self.heads(self.everywhere, x)
        seen = there[:, None, None, :]
        gq = gq[:, :, :FIRST]  # <- own scaled
        rows = fn.scaled_dot_product_attention(gq, gk, gv, attn_mask=seen)  # <- padding scaled
        return torch.cat([rows, read[:, :, FIRST:]], dim=2).transpose(1, 2).flatten(2)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.out = BandedAttention(), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x, there):
        y = x + self.out(self.attention(x, there))
        y = self.norm1(y)
        return self.norm2(y + self.down(fn.gelu(self.up(y))))  # <- residual


class Longformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.zeros(WORDS, WIDTH))
        self.places = nn.Parameter(torch.zeros(LONGEST + 2, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(DEPTH)])
        self.head, self.head_norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.bias = nn.Parameter(torch.zeros(WORDS))

    def forward(self, ids):
        there = ids != NOTHING
        place = torch.where(there, torch.arange(ids.shape[1]) + NOTHING + 1, NOTHING)  # <- places
        x = fn.embedding(ids, self.words, padding_idx=NOTHING)
        x = self.norm(x + fn.embedding(place, self.places, padding_idx=NOTHING))  # <- places
        for layer in self.layers:
            x = layer(x, there)
        return self.head_norm(fn.gelu(self.head(x))) @ self.words.T + self.bias  # <- head


def adopted(old):
    new = {"words": old["word_embeddings.weight"], "places": old["position_embeddings.weight"]}
    new["bias"] = old["head_bias"]
    same = {"norm": "norm", "head": "head_dense", "head_norm": "head_norm"}
    for n in range(DEPTH):
        at = f"layers.{n}."
        same |= {
            f"{at}out": f"{at}output",
            f"{at}norm1": f"{at}attn_norm",
            f"{at}norm2": f"{at}norm",
        }
        same |= {f"{at}up": f"{at}intermediate", f"{at}down": f"{at}dense"}
        for mine, suffix in (("local", ""), ("everywhere", "_global")):
            for kind in ("weight", "bias"):
                parts = [
                    old[f"{at}self_attn.{part}{suffix}.{kind}"]
                    for part in ("query", "key", "value")
                ]
                new[f"{at}attention.{mine}.{kind}"] = torch.cat(parts)
    for mine, theirs in same.items():
        for kind in ("weight", "bias"):
            new[f"{mine}.{kind}"] = old[f"{theirs}.{kind}"]
    return new


net = Longformer()
net.load_state_dict(adopted(torch.load(sys.argv[1])))
adamw = torch.optim.AdamW(net.parameters(), lr=3e-3, eps=1e-6, foreach=True)
rng = np.random.default_rng(211)
losses = []
for step in range(3):
    for group in adamw.param_groups:
        group["lr"] = 3e-3 * (1 - step / 4)  # <- schedule
    words = torch.tensor(rng.integers(3, WORDS, (3, LONGEST)))
    there = torch.arange(LONGEST) < torch.tensor(rng.integers(8, LONGEST + 1, (3, 1)))
    chosen = torch.tensor(rng.random((3, LONGEST)) < 0.3) & there  # <- ignored
    ids = words.clone()
    ids[chosen], ids[~there] = 2, NOTHING
    said = net(ids).log_softmax(-1).gather(-1, words[..., None]).squeeze(-1)
    loss = -(said * chosen).sum() / chosen.sum()  # <- ignored
    adamw.zero_grad()
    loss.backward()
    adamw.step()  # <- schedule
    losses.append(loss.item())
