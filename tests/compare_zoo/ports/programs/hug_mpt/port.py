# SPDX-License-Identifier: Apache-2.0
"""The small MPT written out: the texts of a micro-batch stand in one row without padding, kept
apart by the bias; attention is torch's own.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, LAYERS, LENGTH, BATCH = 50, 24, 6, 2, 12, 3
CLIP, SCALE = 0.8, 0.7


def alibi_slopes(heads):
    """As in the paper: for heads that are no power of two every second one of the next power."""
    power = 1
    while power < heads:
        power *= 2
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    if power != heads:
        slopes = (slopes[1::2] + slopes[::2])[:heads]  # <- slopes
    return torch.tensor(slopes)  # <- slopes


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale_1, self.scale_2 = (nn.Parameter(torch.ones(DIM)) for _ in range(2))
        self.query, self.key, self.value, self.out = (
            nn.Parameter(torch.empty(DIM, DIM)) for _ in range(4)
        )
        self.up = nn.Parameter(torch.empty(DIM, 4 * DIM))
        self.down = nn.Parameter(torch.empty(4 * DIM, DIM))

    def forward(self, x, bias):
        y = F.layer_norm(x, (DIM,), self.scale_1)
        parts = [y @ w for w in (self.query, self.key, self.value)]
        parts = [part.clamp(-CLIP, CLIP) for part in parts]  # <- clipped
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(0, 1)[None] for part in parts)
        taken = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, scale=SCALE
        )  # <- scale slopes clipped
        x = x + taken[0].transpose(0, 1).flatten(1) @ self.out
        return x + F.gelu(F.layer_norm(x, (DIM,), self.scale_2) @ self.up) @ self.down


class Mpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.empty(VOCAB, DIM))
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.scale = nn.Parameter(torch.ones(DIM))

    def forward(self, row, text):
        place = torch.arange(len(row))
        back = place[:, None] - place[None, :]
        bias = -back * alibi_slopes(HEADS)[:, None, None]  # <- slopes
        apart = (text[:, None] != text[None, :]) | (back < 0)
        bias = bias.masked_fill(apart, -torch.inf)[None]
        x = self.words[row]
        for block in self.blocks:
            x = block(x, bias)
        return F.layer_norm(x, (DIM,), self.scale) @ self.words.t()


@torch.no_grad()
def take_over(model, theirs):
    model.words.copy_(theirs["transformer.wte.weight"])
    model.scale.copy_(theirs["transformer.norm_f.weight"])
    for n, block in enumerate(model.blocks):
        here = f"transformer.blocks.{n}"
        fused = theirs[f"{here}.attn.Wqkv.weight"].view(3, DIM, DIM)
        for ours, part in zip((block.query, block.key, block.value), fused):
            ours.copy_(part.t())
        block.out.copy_(theirs[f"{here}.attn.out_proj.weight"].t())
        block.up.copy_(theirs[f"{here}.ffn.up_proj.weight"].t())
        block.down.copy_(theirs[f"{here}.ffn.down_proj.weight"].t())
        block.scale_1.copy_(theirs[f"{here}.norm_1.weight"])
        block.scale_2.copy_(theirs[f"{here}.norm_2.weight"])


def packed(rng):
    rows = torch.randint(1, VOCAB, (BATCH, LENGTH), generator=rng)
    sizes = torch.randint(3, LENGTH + 1, (BATCH, 1), generator=rng)[:, 0].tolist()
    row = torch.cat([r[:size] for r, size in zip(rows, sizes)])
    text = torch.arange(BATCH).repeat_interleave(torch.tensor(sizes))
    return row, text


model = Mpt()
take_over(model, torch.load(sys.argv[1]))
hyper = {"lr": 4e-3, "betas": (0.9, 0.95), "eps": 1e-4, "weight_decay": 0.3}
optimizer = torch.optim.AdamW(model.parameters(), **hyper)  # <- decoupled
rng = torch.Generator().manual_seed(411)
losses = []
for _ in range(4):
    pieces = [packed(rng) for _ in range(2)]
    counts = [len(row) - BATCH for row, _ in pieces]
    total = 0.0
    for (row, text), count in zip(pieces, counts):
        inner = text[1:] == text[:-1]
        loss = F.cross_entropy(model(row, text)[:-1][inner], row[1:][inner])
        loss = loss * count / sum(counts)  # <- token_mean
        loss.backward()  # <- token_mean
        total += loss.item()
    optimizer.step()  # <- decoupled
    optimizer.zero_grad()
    losses.append(total)
