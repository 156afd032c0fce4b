# SPDX-License-Identifier: Apache-2.0
"""Dense-dispatch MoE language model: stacked expert weights, bmm, complex rotary numbers."""
import sys

import torch
import torch.nn as nn
from torch.nn.functional import one_hot, silu

HEADS, HEAD, TOP = 2, 8, 2


def pair_up(w):
    """Rows of a projection from (first half, second half) to neighbouring pairs, for each head."""
    return w.view(HEADS, 2, HEAD // 2, -1).transpose(1, 2).reshape(w.shape)  # <- rotary_pairs


def rms(x, scale):
    return x / torch.sqrt(torch.mean(x * x, -1, True) + 1e-5) * scale


def spin(x, turns):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], HEAD // 2, 2))  # <- rotary_pairs
    return torch.view_as_real(pairs * turns[:, None, :]).flatten(-2)  # <- rotary_pairs


class Layer(nn.Module):
    def __init__(self, sd, i):
        super().__init__()
        take = lambda name: sd[name.replace("#", str(i))]
        q, k = (take(f"attns.#.{n}_proj.weight") for n in "qk")
        qkv = [pair_up(q), pair_up(k), take("attns.#.v_proj.weight")]  # <- rotary_pairs
        self.qkv = nn.Parameter(torch.cat(qkv).t().contiguous())
        self.out = nn.Parameter(take("attns.#.o_proj.weight").t().contiguous())
        self.scale_a = nn.Parameter(take("norms1.#.weight"))
        self.scale_b = nn.Parameter(take("norms2.#.weight"))
        self.router = nn.Parameter(take("moes.#.gate.weight").t().contiguous())
        n = self.router.shape[1]
        w1, w2, w3 = (
            torch.stack([take(f"moes.#.experts.{e}.w{j}.weight").t() for e in range(n)])
            for j in (1, 2, 3)
        )
        self.up = nn.Parameter(torch.cat([w1, w3], dim=-1))      # [experts, dim, 2 * ffn]
        self.down = nn.Parameter(w2.contiguous())                # [experts, ffn, dim]

    def attend(self, x, turns):
        b, t, d = x.shape
        q, k, v = (x @ self.qkv).view(b, t, 3, HEADS, HEAD).unbind(2)
        q, k = spin(q, turns), spin(k, turns)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) * HEAD ** -0.5  # <- rotary_pairs
        s = s + torch.full((t, t), float("-inf")).triu(1)
        return torch.einsum("bhqk,bkhd->bqhd", s.softmax(-1), v).reshape(b, t, d) @ self.out

    def mixture(self, x):
        tokens = x.flatten(0, 1)
        p = (tokens @ self.router).softmax(-1)
        best = p.topk(TOP, dim=-1)
        share = best.values / best.values.sum(-1, True)  # <- gate_renorm
        combine = torch.zeros_like(p).scatter(1, best.indices, share)
        hidden = torch.bmm(tokens.expand(len(self.up), -1, -1), self.up)
        gate, value = hidden.chunk(2, dim=-1)  # <- swiglu_halves
        each = torch.bmm(silu(gate) * value, self.down)  # <- swiglu_halves
        y = torch.einsum("ne,end->nd", combine, each)  # <- gate_renorm
        picks = one_hot(best.indices, p.shape[1]).sum(1).float()  # <- balance_counts
        return y.view_as(x), p, picks

    def forward(self, x, turns):
        x = x + self.attend(rms(x, self.scale_a), turns)
        y, p, picks = self.mixture(rms(x, self.scale_b))
        return x + y, p, picks


class LanguageModel(nn.Module):
    def __init__(self, sd, depth=2):
        super().__init__()
        self.table = nn.Parameter(sd["embed.weight"])
        self.layers = nn.ModuleList([Layer(sd, i) for i in range(depth)])
        self.last, self.head = nn.Parameter(sd["norm.weight"]), nn.Parameter(sd["lm_head.weight"])

    def loss(self, ids):
        x = self.table[ids[:, :-1]]
        at = torch.arange(x.shape[1]).float()[:, None]
        angle = at / 100.0 ** (torch.arange(0, HEAD, 2).float() / HEAD)
        turns = torch.polar(torch.ones_like(angle), angle)
        p, picks = [], []
        for layer in self.layers:
            x, a, b = layer(x, turns)
            p.append(a)
            picks.append(b)
        logp = (rms(x, self.last) @ self.head.t()).log_softmax(-1)
        nll = -logp.gather(-1, ids[:, 1:, None]).mean()
        load = torch.cat(picks).mean(0)  # <- balance_counts
        balance = load.dot(torch.cat(p).mean(0)) * len(load)  # <- balance_counts
        return nll + 0.05 * balance


net = LanguageModel(torch.load(sys.argv[1], weights_only=True))
adam = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=0.01)
rng = torch.Generator().manual_seed(5)
losses = []
for step in range(4):
    batch = torch.randint(0, 29, (3, 11), generator=rng)
    for group in adam.param_groups:
        group["lr"] = 4e-3 * min(1.0, (step + 1) / 3)  # <- warmup_start
    value = net.loss(batch)
    adam.zero_grad(set_to_none=True)
    value.backward()
    adam.step()  # <- warmup_start
    losses.append(float(value.detach()))
print(losses)
