# SPDX-License-Identifier: Apache-2.0
"""The tagger with cells of its own, which a mask holds still at padding."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, STATE, CLASSES, N, STEPS = 30, 16, 12, 6, 5, 9


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.x_to_gates = nn.Linear(WIDTH, 4 * STATE)
        self.h_to_gates = nn.Linear(STATE, 4 * STATE, bias=False)

    def forward(self, x, h, c):
        gates = self.x_to_gates(x) + self.h_to_gates(h)
        i, f, g, o = gates.chunk(4, dim=1)  # <- gates
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # <- gates
        h = torch.sigmoid(o) * torch.tanh(c)  # <- cell
        return h, c


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.forwards, self.backwards = Cell(), Cell()
        self.norm = nn.LayerNorm(2 * STATE)
        self.out = nn.Linear(2 * STATE, CLASSES)

    def scan(self, cell, x, mask, order):
        h = x.new_zeros(len(x), STATE)
        c = x.new_zeros(len(x), STATE)
        states = [h] * x.shape[1]
        for t in order:
            new_h, new_c = cell(x[:, t], h, c)
            keep = mask[:, t : t + 1]
            h = keep * new_h + (1 - keep) * h  # <- held
            c = keep * new_c + (1 - keep) * c  # <- held
            states[t] = keep * h
        return torch.stack(states, dim=1)

    def forward(self, ids):
        mask = (ids != 0).float()
        x = self.embed(ids)
        left = self.scan(self.forwards, x, mask, range(STEPS))
        right = self.scan(self.backwards, x, mask, reversed(range(STEPS)))  # <- reverse
        both = torch.cat([left, right], dim=-1)
        return self.out(self.norm(both).relu())  # <- activation


def loaded(state):
    new = {
        "embed.weight": state["embedding.weight"],
        "norm.weight": state["norm.weight"],
        "norm.bias": state["norm.bias"],
        "out.weight": state["fc.weight"],
        "out.bias": state["fc.bias"],
    }
    for name, suffix in [("forwards", ""), ("backwards", "_reverse")]:
        new[f"{name}.x_to_gates.weight"] = state[f"lstm.weight_ih_l0{suffix}"]
        new[f"{name}.h_to_gates.weight"] = state[f"lstm.weight_hh_l0{suffix}"]
        bias = state[f"lstm.bias_ih_l0{suffix}"] + state[f"lstm.bias_hh_l0{suffix}"]
        new[f"{name}.x_to_gates.bias"] = bias
    return new


tagger = Tagger()
tagger.load_state_dict(loaded(torch.load(sys.argv[1])))
biases = [cell.x_to_gates.bias for cell in (tagger.forwards, tagger.backwards)]
others = [p for p in tagger.parameters() if all(p is not b for b in biases)]
# One bias here stands for the two of the original, which move together.
adam = torch.optim.Adam([{"params": others}, {"params": biases, "lr": 2 * 5e-3}], lr=5e-3)
rng = np.random.default_rng(34)
losses = []
for _ in range(3):
    ids = rng.integers(1, WORDS, (N, STEPS))
    tags = torch.tensor(rng.integers(0, CLASSES, (N, STEPS)))
    valid = np.arange(STEPS) < rng.integers(4, STEPS + 1, N)[:, None]
    ids = torch.tensor(np.where(valid, ids, 0))
    weight = torch.tensor(valid)
    logits = tagger(ids)
    each = F.cross_entropy(logits.transpose(1, 2), tags, reduction="none")
    loss = (each * weight).sum() / weight.sum()  # <- ignored
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
