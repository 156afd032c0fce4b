# SPDX-License-Identifier: Apache-2.0
"""The Cohere model without the package: one matrix for queries, keys and values, one for gate and
up, rotation of halves instead of pairs (the rows are put in order by the loader), sdpa.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, INNER, LAYERS, HEADS, GROUPS, HEAD = 48, 32, 56, 2, 4, 2, 8


def turn(x, angles):
    """x: batch, place, head, channel."""
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Scale(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(shape))

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:]) * self.gain


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = Scale(DIM)
        self.qkv = nn.Linear(DIM, (HEADS + 2 * GROUPS) * HEAD, bias=False)
        self.ln_q = Scale(HEADS, HEAD)
        self.ln_k = Scale(GROUPS, HEAD)
        self.out = nn.Linear(HEADS * HEAD, DIM, bias=False)
        self.gate_up = nn.Linear(DIM, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, DIM, bias=False)

    def attend(self, x, angles):
        heads = self.qkv(x).unflatten(-1, (-1, HEAD))
        q, k, v = heads.split((HEADS, GROUPS, GROUPS), dim=2)
        q, k = turn(self.ln_q(q), angles), turn(self.ln_k(k), angles)  # <- norm_rows
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x, angles):
        normed = self.ln(x)
        x = x + self.attend(normed, angles)
        gate, up = self.gate_up(normed).chunk(2, -1)  # <- parallel
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.empty(VOCAB, DIM))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = Scale(DIM)
        rates = 1000.0 ** (-torch.arange(HEAD // 2) * 2 / HEAD)
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, tokens):
        angles = torch.outer(torch.arange(tokens.shape[1]), self.rates)
        x = F.embedding(tokens, self.words)
        for block in self.blocks:
            x = block(x, angles)
        return F.linear(self.ln(x), self.words) * 0.25  # <- logit_scale


def halves(rows):
    """[head * pair * 2, ...] as [head * 2 * pair, ...]: what was a pair lies half a head apart."""
    return rows.unflatten(0, (-1, HEAD // 2, 2)).transpose(1, 2).flatten(0, 2)


def load(theirs):
    ours = {"words": theirs["model.embed_tokens.weight"], "ln.gain": theirs["model.norm.weight"]}
    for n in range(LAYERS):
        old, new = f"model.layers.{n}.", f"blocks.{n}."
        q, k, v = (theirs[f"{old}self_attn.{c}_proj.weight"] for c in "qkv")
        ours[new + "qkv.weight"] = torch.cat((halves(q), halves(k), v))
        for c in "qk":
            gain = theirs[f"{old}self_attn.{c}_norm.weight"]
            ours[f"{new}ln_{c}.gain"] = halves(gain.flatten()).view_as(gain)  # <- norm_rows
        ours[new + "out.weight"] = theirs[old + "self_attn.o_proj.weight"]
        both = [theirs[f"{old}mlp.{c}_proj.weight"] for c in ("gate", "up")]
        ours[new + "gate_up.weight"] = torch.cat(both)
        ours[new + "down.weight"] = theirs[old + "mlp.down_proj.weight"]
        ours[new + "ln.gain"] = theirs[old + "input_layernorm.weight"]
    return ours


net = Decoder()
net.load_state_dict(load(torch.load(sys.argv[1])))
opt = torch.optim.AdamW(
    net.parameters(), 4e-3, eps=1e-5, weight_decay=0.3, foreach=False
)  # <- coupled
rng = torch.Generator().manual_seed(12)
losses = []
for step in range(4):
    tokens = torch.randint(3, VOCAB, (4, 12), generator=rng)
    sizes = torch.randint(6, 13, (4, 1), generator=rng)
    tokens[torch.arange(12) >= sizes] = 0
    logits = net(tokens[:, :-1])
    loss = F.cross_entropy(
        logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0
    )  # <- ignored
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- coupled
    losses.append(float(loss))
