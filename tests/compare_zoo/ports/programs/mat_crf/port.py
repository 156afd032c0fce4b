# SPDX-License-Identifier: Apache-2.0
"""Sequence labeller: one augmented transition table, log-matrix scan, flat parameter vector."""

import sys
from math import prod

import torch

N_TAGS, D, T = 5, 6, 7
BOS = EOS = N_TAGS


class Flat:
    """every weight lives in one vector; views are cut out on demand"""

    def __init__(self, tree):
        self.shapes = {k: v.shape for k, v in tree.items()}
        self.vector = torch.cat([v.reshape(-1) for v in tree.values()])

    def views(self, vector):
        pieces = vector.split([prod(s) for s in self.shapes.values()])
        return {k: x.view(s) for (k, s), x in zip(self.shapes.items(), pieces)}


def translate(sd):
    table = torch.zeros(N_TAGS + 1, N_TAGS + 1)  # to row, from column; the last is the border
    table[:-1, :-1] = sd["crf.trans"].T
    table[:-1, BOS] = sd["crf.start"]
    table[EOS, :-1] = sd["crf.end"]
    return {
        "word": sd["encoder.word.weight"],
        "char": sd["encoder.char.weight"][1:],
        "pair": sd["encoder.char_conv.weight"].permute(2, 1, 0).flatten(0, 1),
        "pair_b": sd["encoder.char_conv.bias"],
        "hw": torch.cat([sd["highway.transform.weight"], sd["highway.gate.weight"]]).T,
        "hw_b": torch.cat([sd["highway.transform.bias"], sd["highway.gate.bias"]]),
        "emit": sd["emit.weight"].T,
        "emit_b": sd["emit.bias"],
        "table": table,
    }


def emissions(p, words, chars):
    letters = torch.cat([torch.zeros(1, D), p["char"]])[chars]
    bigrams = torch.cat([letters[..., :-1, :], letters[..., 1:, :]], -1)
    spelled, _ = (bigrams @ p["pair"] + p["pair_b"]).max(dim=-2)
    x = torch.cat([p["word"][words], spelled.tanh()], -1)
    new, gate = (x @ p["hw"] + p["hw_b"]).tensor_split(2, -1)
    x = x + gate.sigmoid() * (new.clamp_min(0) - x)  # <- carry_gate
    return x @ p["emit"] + p["emit_b"]


def log_z(table, emit, sizes):
    inner = table[:-1, :-1]
    front = emit[:, 0] + table[:-1, BOS]
    fronts = [front]
    for t in range(1, T):
        reach = (inner + front[:, None, :]).logsumexp(-1)  # <- transition_axis
        front = reach + emit[:, t]
        fronts.append(front)
    final = torch.stack(fronts, 1)[torch.arange(len(sizes)), sizes - 1]  # <- masked_step
    return torch.logsumexp(final + table[EOS, :-1], -1)  # <- masked_step


def gold(table, emit, tags, sizes):
    step = torch.arange(T)
    inside = step < sizes[:, None]
    local = emit.gather(2, tags[..., None])[..., 0]
    before = torch.cat([torch.full_like(tags[:, :1], BOS), tags[:, :-1]], 1)
    score = ((local + table[tags, before]) * inside).sum(1)
    last = tags.gather(1, sizes[:, None] - 1)[:, 0]  # <- end_state
    return score + table[EOS, last]  # <- end_state


def objective(p, words, chars, tags, sizes):
    emit = emissions(p, words, chars)
    cost = log_z(p["table"], emit, sizes) - gold(p["table"], emit, tags, sizes)
    return torch.mean(cost / sizes)


flat = Flat(translate(torch.load(sys.argv[1], weights_only=True)))
point = flat.vector.clone()
momentum = torch.zeros_like(point)
rng = torch.Generator().manual_seed(17)
losses = []
for _ in range(4):
    words = torch.randint(0, 30, (3, T), generator=rng)
    chars = torch.randint(1, 12, (3, T, 4), generator=rng)
    chars[:, 0::2, -1] = 0
    tags = torch.randint(0, N_TAGS, (3, T), generator=rng)
    sizes = torch.tensor([7, 5, 4])

    def slope(at):
        at = at.detach().requires_grad_()
        value = objective(flat.views(at), words, chars, tags, sizes)
        return value.item(), torch.autograd.grad(value, at)[0]

    value, g = slope(point)
    peak = point + 0.3 * g / g.norm()  # <- sam_radius
    _, g = slope(peak)  # <- sam_radius
    momentum = g + 0.5 * momentum
    point = point - 0.2 * momentum
    losses.append(value)
print(losses)
