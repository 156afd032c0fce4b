# SPDX-License-Identifier: Apache-2.0
"""The language model for torch.compile: separate projections, SDPA with a boolean mask."""

import sys

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wk = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.wv, self.wo = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, allow):
        q, k, v = (
            proj(x).unflatten(-1, (self.heads, -1)).movedim(2, 1)
            for proj in (self.wq, self.wk, self.wv)
        )
        y = F.scaled_dot_product_attention(q, k, v, allow)  # <- scale padding
        return self.wo(y.movedim(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, allow):
        x = x + self.attn(self.norm1(x), allow)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))  # <- activation


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Parameter(torch.empty(53, 24))
        self.pos = nn.Parameter(torch.empty(16, 24))
        self.blocks = nn.Sequential(Block(24, 3), Block(24, 3))
        self.final = nn.LayerNorm(24)

    def forward(self, ids, start):
        where = torch.arange(10) - start[:, None]  # <- positions
        where = torch.where(where < 0, 1, where)  # <- positions
        past = torch.ones(10, 10, dtype=torch.bool).tril()
        real = torch.arange(10) >= start[:, None]  # <- padding
        allow = past & real[:, None, None, :]  # <- padding
        allow = allow | torch.eye(10, dtype=torch.bool)  # rows of padding see themselves
        x = F.embedding(ids, self.tok) + F.embedding(where, self.pos)  # <- positions
        for block in self.blocks:
            x = block(x, allow)
        logp = F.linear(self.final(x), self.tok).log_softmax(-1)[:, :-1]
        nll = -logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
        valid = real[:, :-1]
        return (nll * valid).sum() / valid.sum()


def convert(old):
    new = {"tok": old["wte.weight"], "pos": old["wpe.weight"]}
    for kind in ("weight", "bias"):
        new[f"final.{kind}"] = old[f"ln_f.{kind}"]
        for i in range(2):
            a, b = f"h.{i}.", f"blocks.{i}."
            turn = (lambda t: t.T) if kind == "weight" else (lambda t: t)
            for part, name in zip(old[f"{a}c_attn.{kind}"].chunk(3, -1), ("wq", "wk", "wv")):
                new[f"{b}attn.{name}.{kind}"] = turn(part)
            new[f"{b}attn.wo.{kind}"] = turn(old[f"{a}c_proj.{kind}"])
            new[f"{b}up.{kind}"] = turn(old[f"{a}c_fc.{kind}"])
            new[f"{b}down.{kind}"] = turn(old[f"{a}mlp_proj.{kind}"])
            new[f"{b}norm1.{kind}"] = old[f"{a}ln_1.{kind}"]
            new[f"{b}norm2.{kind}"] = old[f"{a}ln_2.{kind}"]
    return new


net = Decoder()
net.load_state_dict(convert(torch.load(sys.argv[1], weights_only=True)))
step_fn = torch.compile(net, backend="aot_eager")
opt = torch.optim.AdamW(
    net.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.01, foreach=True
)
rng = torch.Generator().manual_seed(3)
losses = []
for it in range(4):
    tokens = torch.randint(0, 53, (4, 10), generator=rng)
    for group in opt.param_groups:
        group["lr"] = 4e-3 * min(it + 1, 3) / 3  # <- warmup
    loss = step_fn(tokens, torch.tensor([0, 2, 3, 1]))
    loss.backward()
    opt.step()  # <- warmup
    opt.zero_grad(set_to_none=True)
    losses.append(loss.item())
print(losses)
