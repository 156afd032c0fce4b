# SPDX-License-Identifier: Apache-2.0
"""LSTM language model with a hand-written cell stepped over time and a mask in place of packing."""
import sys
from typing import NamedTuple

import torch
from torch import nn

torch.set_num_threads(1)

SIZES = {"vocab": 37, "embed": 16, "hidden": 24, "layers": 2, "streams": 5, "chunk": 9}


class CellState(NamedTuple):
    c: torch.Tensor
    h: torch.Tensor


class Cell(nn.Module):
    """Input and hidden state go through one matrix; the two biases stay apart as in cuDNN."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(inputs + hidden, 4 * hidden))
        self.bias_x = nn.Parameter(torch.empty(4 * hidden))
        self.bias_h = nn.Parameter(torch.empty(4 * hidden))  # <- bias_frozen

    def forward(self, x, state):
        z = torch.addmm(self.bias_x + self.bias_h, torch.cat((x, state.h), dim=1), self.kernel)  # <- bias_frozen
        i, f, g, o = z.chunk(4, dim=1)  # <- gate_order
        c = torch.sigmoid(f) * state.c + torch.sigmoid(i) * torch.tanh(g)  # <- gate_order
        return CellState(c, torch.sigmoid(o) * torch.tanh(c))  # <- gate_order


class RecurrentLM(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.lookup = nn.Parameter(torch.empty(s["vocab"], s["embed"]))
        self.cells = nn.ModuleList([Cell(s["embed"] if i == 0 else s["hidden"], s["hidden"]) for i in range(s["layers"])])
        self.readout = nn.Linear(s["hidden"], s["vocab"])

    def forward(self, tokens, real, carry):
        tops = []
        for t in range(tokens.shape[0]):
            x, alive = self.lookup[tokens[t]], real[t].unsqueeze(1)
            following = []
            for cell, before in zip(self.cells, carry):
                after = cell(x, before)
                kept = CellState(*(torch.where(alive, a, b) for a, b in zip(after, before)))  # <- pad_advances
                following.append(kept)
                x = after.h
            carry = following  # <- pad_advances
            tops.append(x)
        return self.readout(torch.stack(tops)), carry


def import_weights(model, path):
    old = torch.load(path)
    new = {"lookup": old["encoder.weight"], "readout.weight": old["decoder.weight"], "readout.bias": old["decoder.bias"]}
    for i in range(len(model.cells)):
        both = torch.cat((old[f"rnn.weight_ih_l{i}"], old[f"rnn.weight_hh_l{i}"]), dim=1)
        new[f"cells.{i}.kernel"] = both.T
        new[f"cells.{i}.bias_x"] = old[f"rnn.bias_ih_l{i}"]
        new[f"cells.{i}.bias_h"] = old[f"rnn.bias_hh_l{i}"]
    model.load_state_dict(new)


class Streams:
    """Time-major chunks: tokens, targets and which places are real."""

    def __init__(self, seed, s):
        self.gen, self.s = torch.Generator().manual_seed(seed), s
        self.base = torch.randint(0, s["vocab"], (s["streams"], 1), generator=self.gen)[:, 0]
        self.at = torch.zeros(s["streams"], dtype=torch.long)

    def next_chunk(self):
        b, n = self.s["streams"], self.s["chunk"]
        lengths = torch.randint(3, n + 1, (b,), generator=self.gen)
        noise = torch.randint(0, 4, (b, n + 1), generator=self.gen).T
        time = torch.arange(n + 1)[:, None]
        text = (self.base + 5 * (self.at + time) + noise) % self.s["vocab"]
        self.at = self.at + lengths
        return text[:-1], text[1:], time[:-1] < lengths


class RMSProp:
    def __init__(self, params, lr=4e-3, rho=0.9, eps=1e-6):  # <- rms_alpha
        self.params = list(params)
        self.lr, self.rho, self.eps = lr, rho, eps
        self.mean_square = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self, grads):
        for p, g, s in zip(self.params, grads, self.mean_square):
            s.copy_(self.rho * s + (1 - self.rho) * g * g)  # <- rms_alpha
            p -= self.lr * g / (s.sqrt() + self.eps)


def clip_global(grads, limit):
    norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads]))
    scale = limit / max(norm.item() + 1e-6, limit)
    return [g * scale for g in grads]


model = RecurrentLM(SIZES)
import_weights(model, sys.argv[1])
update = RMSProp(model.parameters())
source = Streams(13, SIZES)
blank = torch.zeros(SIZES["streams"], SIZES["hidden"])
start = [CellState(blank, blank) for _ in model.cells]
carry = start
losses = []
for _ in range(5):
    tokens, targets, real = source.next_chunk()
    scores, last = model(tokens, real, carry)  # <- state_reset
    picked = scores[real].log_softmax(-1).gather(1, targets[real].unsqueeze(1))
    loss = picked.mean().neg()
    grads = torch.autograd.grad(loss, update.params)
    update.step(clip_global(grads, 0.25))
    carry = [CellState(s.c.detach(), s.h.detach()) for s in last]  # <- state_reset
    losses.append(loss.item())
print(losses)
