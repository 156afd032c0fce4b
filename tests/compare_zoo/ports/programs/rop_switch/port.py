# SPDX-License-Identifier: Apache-2.0
"""Sparse layer by sorting tokens per expert: gather in, loop over experts, scatter the results back."""
import sys
from dataclasses import dataclass, field

import torch
from torch import Tensor

torch.set_num_threads(1)


@dataclass
class Hyper:
    words: int = 31
    width: int = 24
    heads: int = 3
    experts: int = 5
    length: int = 12
    rows: int = 4
    lr: float = 4e-3
    beta: tuple = (0.9, 0.98)
    balance: float = 1e-2
    z: float = 1e-3


@dataclass
class Route:
    """Which token goes where; `kept` tells who found room with its expert."""

    choice: Tensor
    chance: Tensor
    kept: Tensor
    penalties: dict = field(default_factory=dict)


class Weights(dict):
    @classmethod
    def read(cls, path, hp):
        sd, out = torch.load(path), cls()
        for part, rows in zip("qkv", range(0, 3 * hp.width, hp.width)):
            out["attn." + part] = sd["attn.in_proj_weight"][rows : rows + hp.width].T
            out["attn.b" + part] = sd["attn.in_proj_bias"][rows : rows + hp.width]
        out["attn.o"], out["attn.bo"] = sd["attn.out_proj.weight"].T, sd["attn.out_proj.bias"]
        for e in range(hp.experts):
            out[f"expert{e}.up"], out[f"expert{e}.down"] = sd["ffn.experts.wi"][e], sd["ffn.experts.wo"][e]
        out["router"], out["table"], out["place"] = sd["ffn.router.weight"].T, sd["embed.weight"], sd["pos"]
        out["head"], out["head.b"] = sd["head.weight"].T, sd["head.bias"]
        for n in (1, 2, 3):
            out[f"norm{n}"] = torch.stack([sd[f"norm{n}.weight"], sd[f"norm{n}.bias"]])
        for k in out:
            out[k] = out[k].clone(memory_format=torch.contiguous_format).requires_grad_()
        return out


def normed(w, n, x):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"norm{n}"][0] + w[f"norm{n}"][1]


def attention(w, x, hp):
    q, k, v = ((x @ w["attn." + s] + w["attn.b" + s]).unflatten(-1, (hp.heads, -1)).transpose(1, 2) for s in "qkv")
    grid = q @ k.mT * q.shape[-1] ** -0.5
    past = torch.tril(torch.ones(hp.length, hp.length, dtype=torch.bool))
    y = torch.where(past, grid, -torch.inf).softmax(-1) @ v
    return y.transpose(1, 2).flatten(2) @ w["attn.o"] + w["attn.bo"]


def route(w, x, hp):
    scores = x @ w["router"]
    probs = scores.softmax(-1)
    choice = scores.argmax(-1)
    chance = probs.gather(1, choice[:, None]).squeeze(1)  # <- gate_detached
    room = -(-len(x) // hp.experts)  # <- capacity_rounded_down
    order = torch.argsort(choice, stable=True)
    counts = torch.bincount(choice, minlength=hp.experts)
    rank = torch.arange(len(x)) - (counts.cumsum(0) - counts)[choice[order]]
    kept = torch.zeros(len(x), dtype=torch.bool).scatter(0, order, rank < room)  # <- capacity_rounded_down
    load = counts / len(x)  # <- balance_after_drop
    penalties = {
        "balance": hp.experts * torch.dot(load, probs.mean(0)),  # <- balance_after_drop
        "z": scores.logsumexp(-1).pow(2).mean(),  # <- z_loss_not_squared
    }
    return Route(choice, chance, kept, penalties)


def sparse(w, x, hp):
    plan = route(w, x, hp)
    out = torch.zeros_like(x)
    for e in range(hp.experts):
        rows = torch.nonzero((plan.choice == e) & plan.kept).squeeze(1)  # <- capacity_rounded_down
        hidden = (x[rows] @ w[f"expert{e}.up"]).relu()
        answer = hidden @ w[f"expert{e}.down"]
        out = out.index_add(0, rows, answer * plan.chance[rows, None])  # <- gate_detached
    return out, plan.penalties


def total_loss(w, text, hp):
    x = w["table"][text[:, :-1]] + w["place"]
    x = x + attention(w, normed(w, 1, x), hp)
    y, extra = sparse(w, normed(w, 2, x).flatten(0, 1), hp)
    logits = normed(w, 3, x.flatten(0, 1) + y) @ w["head"] + w["head.b"]
    right = logits[torch.arange(len(logits)), text[:, 1:].flatten()]
    surprise = (logits.logsumexp(-1) - right).mean()
    return surprise + hp.balance * extra["balance"] + hp.z * extra["z"]  # <- balance_after_drop z_loss_not_squared


class Optimiser:
    def __init__(self, w, hp):
        self.w, self.hp, self.n = w, hp, 0
        self.mean = [torch.zeros_like(t) for t in w.values()]
        self.power = [torch.zeros_like(t) for t in w.values()]

    @torch.no_grad()
    def descend(self, grads):
        self.n += 1
        a, b = self.hp.beta
        torch._foreach_lerp_(self.mean, grads, 1 - a)
        torch._foreach_mul_(self.power, b)
        torch._foreach_addcmul_(self.power, grads, grads, 1 - b)
        rate = self.hp.lr * (1 - b**self.n) ** 0.5 / (1 - a**self.n)  # <- bias_correction_missing
        floor = 1e-8 * (1 - b**self.n) ** 0.5
        for t, m, v in zip(self.w.values(), self.mean, self.power):
            t -= rate * m / (v.sqrt() + floor)  # <- bias_correction_missing


def texts(hp, steps=5):
    dice = torch.Generator().manual_seed(13)
    for _ in range(steps):
        text = torch.randint(hp.words, (hp.rows, hp.length + 1), generator=dice)
        for column in range(1, hp.length + 1, 3):
            text[:, column] = text[:, 0]
        yield text


hp = Hyper()
w = Weights.read(sys.argv[1], hp)
optimiser = Optimiser(w, hp)
losses = []
for text in texts(hp):
    value = total_loss(w, text, hp)
    optimiser.descend(torch.autograd.grad(value, list(w.values())))  # <- bias_correction_missing
    losses.append(value.item())
print(losses)
