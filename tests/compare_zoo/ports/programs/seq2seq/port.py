# SPDX-License-Identifier: Apache-2.0
"""The same translator time first, with one GRU step for all three recurrences, masks instead of
packing, keys of the attention made once, the whole shifted target embedded before the loop.
"""

import sys

import numpy as np
import torch
from torch import nn

WORDS_IN, WORDS_OUT, DIM, UNITS, SCORE, OUT, ROWS = 33, 27, 10, 12, 14, 8, 5


def blank(*shape):
    return nn.Parameter(torch.zeros(*shape))


class Recurrence(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.wx, self.bx = blank(inputs, 3 * UNITS), blank(3 * UNITS)
        self.wh, self.bh = blank(UNITS, 3 * UNITS), blank(3 * UNITS)

    def forward(self, x, h):
        xr, xz, xn = (x @ self.wx + self.bx).split(UNITS, dim=-1)  # <- gates
        hr, hz, hn = (h @ self.wh + self.bh).split(UNITS, dim=-1)  # <- gates
        r = torch.sigmoid(xr + hr)  # <- gates
        z = torch.sigmoid(xz + hz)  # <- gates
        return torch.lerp(torch.tanh(xn + r * hn), h, z)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = blank(WORDS_IN, DIM)
        self.onward, self.backward_ = Recurrence(DIM), Recurrence(DIM)
        self.start = nn.Linear(UNITS, UNITS)

    def run(self, cell, sentence, present, order):
        h = sentence.new_zeros(ROWS, UNITS)
        states = [None] * len(sentence)
        for t in order:
            h = torch.where(present[t, :, None], cell(sentence[t], h), h)  # <- reversal
            states[t] = h
        return torch.stack(states)

    def forward(self, words):
        present, sentence = words.ne(0), self.table[words]
        there = self.run(self.onward, sentence, present, range(len(words)))
        back = self.run(self.backward_, sentence, present, reversed(range(len(words))))
        first = torch.tanh(self.start(back[0]))  # <- initial
        return torch.cat([there, back], dim=-1), present, first


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = blank(WORDS_OUT, DIM)
        self.query, self.key, self.score = (
            blank(UNITS, SCORE),
            blank(2 * UNITS, SCORE),
            blank(SCORE),
        )
        self.cell = Recurrence(DIM + 2 * UNITS)
        self.from_state, self.from_word = blank(UNITS, 2 * OUT), blank(DIM, 2 * OUT)
        self.from_context, self.offset = blank(2 * UNITS, 2 * OUT), blank(2 * OUT)
        self.logits = blank(OUT, WORDS_OUT)

    def look(self, h, notes, keys, present):
        scores = torch.einsum("tbs,s->tb", torch.tanh(keys + h @ self.query), self.score)
        scores = torch.where(present, scores, -1e9)  # <- unmasked
        weights = scores.softmax(dim=0)  # <- unmasked
        return torch.einsum("tb,tbd->bd", weights, notes)

    def forward(self, given, notes, present, h):
        keys = notes @ self.key
        every = []
        for word in self.table[given]:  # <- forcing
            context = self.look(h, notes, keys, present)
            mixed = h @ self.from_state + word @ self.from_word + context @ self.from_context
            mixed = mixed + self.offset
            best = torch.maximum(mixed[:, 0::2], mixed[:, 1::2])  # <- maxout
            every.append(best @ self.logits)
            h = self.cell(torch.cat([word, context], dim=1), h)
        return torch.stack(every)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.reader, self.writer = Reader(), Writer()

    def forward(self, source, target):
        notes, present, h = self.reader(source)
        given = torch.cat([torch.ones_like(target[:1]), target[:-1]])  # <- forcing
        return self.writer(given, notes, present, h)


def recurrence(old, theirs, mine, suffix=""):
    new = {}
    for side, letter in (("ih", "x"), ("hh", "h")):
        for kind, sign in (("weight", "w"), ("bias", "b")):
            reset, update, fresh = old[f"{theirs}.{kind}_{side}{suffix}"].split(UNITS)
            new[f"{mine}.{sign}{letter}"] = torch.cat([reset, update, fresh]).t()  # <- gates
    return new


def renamed(old):
    e, d = "encoder.", "decoder."
    state, word, context = old[d + "pre_output.weight"].t().split((UNITS, DIM, 2 * UNITS))
    new = {
        "reader.table": old[e + "embedding.weight"],
        "reader.start.weight": old[e + "bridge.weight"],
        "reader.start.bias": old[e + "bridge.bias"],
        "writer.table": old[d + "embedding.weight"],
        "writer.query": old[d + "attention.W_a.weight"].t(),
        "writer.key": old[d + "attention.U_a.weight"].t(),
        "writer.score": old[d + "attention.v_a.weight"][0],
        "writer.from_state": state,
        "writer.from_word": word,
        "writer.from_context": context,
        "writer.offset": old[d + "pre_output.bias"],
        "writer.logits": old[d + "output.weight"].t(),
    }
    new |= recurrence(old, e + "gru", "reader.onward", "_l0")
    new |= recurrence(old, e + "gru", "reader.backward_", "_l0_reverse")
    return new | recurrence(old, d + "cell", "writer.cell")


def sample(rng, vocabulary, longest):
    """Words by time and row: an end (2) after each sentence, then nothing (0)."""
    lengths = rng.integers(3, longest + 1, ROWS)
    lengths[0] = longest
    words = rng.integers(3, vocabulary, (ROWS, longest))
    for row, length in zip(words, lengths):
        row[length - 1], row[length:] = 2, 0
    return torch.tensor(words.T.copy())


def limited(gradients, largest=1.0):
    total = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()  # <- clip
    scale = min(1.0, largest / (total.item() + 1e-6))  # <- clip
    return [g * scale for g in gradients]  # <- clip


net = Translator()
net.load_state_dict(renamed(torch.load(sys.argv[1])))
parameters = list(net.parameters())
rng = np.random.default_rng(15)
losses = []
for _ in range(3):
    source, target = sample(rng, WORDS_IN, 7), sample(rng, WORDS_OUT, 6)
    likely = net(source, target).log_softmax(dim=-1)
    each = -likely.gather(-1, target[..., None])[..., 0]
    loss = each.masked_fill(target == 0, 0.0).sum(dim=0).mean()  # <- averaged
    with torch.no_grad():
        for p, g in zip(parameters, limited(torch.autograd.grad(loss, parameters))):
            p.sub_(0.5 * g)
    losses.append(loss.item())
