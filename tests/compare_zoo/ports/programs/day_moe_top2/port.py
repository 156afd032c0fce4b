# SPDX-License-Identifier: Apache-2.0
"""The mixture of experts without loops: every expert sees every token, weighted by the router."""

import math
import sys

import numpy as np
import torch
from torch import nn

N_VOCAB, D, N_HEADS, N_EXPERTS, N_ACTIVE, D_FF, CONTEXT = 33, 24, 3, 4, 2, 32, 10


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(D, N_EXPERTS, bias=False)
        self.w_in = nn.Parameter(torch.empty(N_EXPERTS, D, D_FF))
        self.b_in = nn.Parameter(torch.empty(N_EXPERTS, D_FF))
        self.w_out = nn.Parameter(torch.empty(N_EXPERTS, D_FF, D))
        self.b_out = nn.Parameter(torch.empty(N_EXPERTS, D))

    def forward(self, x):
        probs = torch.softmax(self.router(x), dim=-1)
        best, chosen = probs.topk(N_ACTIVE, dim=-1)  # <- one
        best = best / best.sum(-1, keepdim=True)  # <- renormalised
        combine = torch.zeros_like(probs).scatter(-1, chosen, best)  # <- one renormalised
        hidden = torch.einsum("btd,edf->btef", x, self.w_in) + self.b_in  # <- experts
        hidden = nn.functional.gelu(hidden)
        out = torch.einsum("btef,efd->bted", hidden, self.w_out) + self.b_out
        y = torch.einsum("bted,bte->btd", out, combine)
        used = torch.zeros_like(probs).scatter(-1, chosen, 1.0)
        load = used.mean((0, 1)) / N_ACTIVE  # <- balance
        balance = N_EXPERTS * torch.dot(load, probs.mean((0, 1)))  # <- balance
        return y, balance


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv = nn.Linear(D, 3 * D, bias=False)
        self.proj = nn.Linear(D, D, bias=False)
        self.moe = MoE()

    def attention(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, N_HEADS, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / math.sqrt(D // N_HEADS)
        allowed = torch.ones(t, t).tril().bool()
        weights = scores.where(allowed, -torch.inf).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y, balance = self.moe(self.norm2(x))
        return x + y, balance  # <- residual


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(N_VOCAB, D)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm = nn.LayerNorm(D)
        self.out = nn.Linear(D, N_VOCAB, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        penalties = []
        for layer in self.layers:
            x, balance = layer(x)
            penalties.append(balance)
        return self.out(self.norm(x)), torch.stack(penalties).sum()  # <- summed


def stacked(old):
    new = {"tokens.weight": old["embed.weight"], "out.weight": old["lm_head.weight"]}
    new["norm.weight"], new["norm.bias"] = old["norm.weight"], old["norm.bias"]
    for i in range(2):
        p = f"layers.{i}"
        for n in (1, 2):
            for kind in ("weight", "bias"):
                new[f"{p}.norm{n}.{kind}"] = old[f"{p}.ln_{n}.{kind}"]
        new[f"{p}.qkv.weight"] = old[f"{p}.attn.in_proj_weight"]
        new[f"{p}.proj.weight"] = old[f"{p}.attn.out_proj.weight"]
        new[f"{p}.moe.router.weight"] = old[f"{p}.moe.gate.weight"]
        experts = [f"{p}.moe.experts.{e}" for e in range(N_EXPERTS)]
        new[f"{p}.moe.w_in"] = torch.stack([old[f"{e}.w1.weight"].T for e in experts])  # <- experts
        new[f"{p}.moe.b_in"] = torch.stack([old[f"{e}.w1.bias"] for e in experts])
        new[f"{p}.moe.w_out"] = torch.stack([old[f"{e}.w2.weight"].T for e in experts])
        new[f"{p}.moe.b_out"] = torch.stack([old[f"{e}.w2.bias"] for e in experts])
    return new


model = Model()
model.load_state_dict(stacked(torch.load(sys.argv[1])))
adam = torch.optim.Adam(model.parameters(), lr=3e-3)
text = np.random.default_rng(82).integers(0, N_VOCAB, (3, 4, CONTEXT + 1))
losses = []
for ids in torch.tensor(text):
    adam.zero_grad()
    logits, balance = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
    loss = loss + 0.05 * balance  # <- summed
    loss.backward()
    adam.step()
    losses.append(loss.item())
