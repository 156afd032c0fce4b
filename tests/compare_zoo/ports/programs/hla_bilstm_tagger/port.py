# SPDX-License-Identifier: Apache-2.0
"""Ragged tagger: sentences stay lists, both directions run as one batch of masked cells,
plain-tensor weights."""
import sys

import torch

raw = torch.load(sys.argv[1], weights_only=True)
E, H, TAGS = 12, 10, 5


def reorder(w):
    """torch's gate order i f g o -> f i o g, so that one sigmoid covers the first three."""
    i, f, g, o = w.chunk(4, 0)
    return torch.cat([f, i, o, g], 0)


def cell_matrix(suffix):
    # [x; h; 1] -> gates; the two biases only ever act as a sum and are stored as one row
    w = torch.cat([raw["lstm.weight_ih_l0" + suffix], raw["lstm.weight_hh_l0" + suffix],
                   (raw["lstm.bias_ih_l0" + suffix] + raw["lstm.bias_hh_l0" + suffix])[:, None]], 1)
    return reorder(w).T


cells = torch.stack([cell_matrix(""), cell_matrix("_reverse")]).contiguous().requires_grad_()
emb = raw["embedding.weight"][1:].clone().requires_grad_()
out_w = raw["out.weight"].clone().requires_grad_()
out_b = raw["out.bias"].clone().requires_grad_()
weights = (cells, emb, out_w, out_b)

# a merged bias stands for two equal ones: it counts twice in the norm and moves twice as far
twice = torch.ones(1, E + H + 1, 1)
twice[:, -1] = 2.0


def run_lstm(sents):
    """-> [tokens, 2H] over all sentences in order."""
    n, longest = len(sents), max(map(len, sents))
    lens = torch.tensor([len(s) for s in sents])
    flat = emb[torch.cat(sents) - 1]
    starts = torch.cumsum(lens, 0) - lens
    h = torch.zeros(2, n, H)
    c = torch.zeros(2, n, H)
    history = []
    for t in range(longest):
        alive = (t < lens)
        fwd = (starts + t).clamp(max=len(flat) - 1)
        bwd = (starts + lens - 1 - t).clamp(min=0)
        xin = torch.stack([flat[fwd], flat[bwd]])
        gates = torch.baddbmm(cells[:, -1:], torch.cat([xin, h], -1), cells[:, :-1])
        f, i, o = gates[..., :3 * H].sigmoid().split(H, -1)
        c_new = f * c + i * gates[..., 3 * H:].tanh()
        h_new = o * c_new.tanh()
        keep = alive[None, :, None]
        c, h = torch.where(keep, c_new, c), torch.where(keep, h_new, h)
        history.append(h)
    hist = torch.stack(history)                                   # T 2 n H
    who = torch.repeat_interleave(torch.arange(n), lens)
    when = torch.arange(len(flat)) - starts[who]
    return torch.cat([hist[when, 0, who],  # <- reverse_order
                      hist[lens[who] - 1 - when, 1, who]], -1)  # <- reverse_order


class_w = torch.tensor([0.5, 1.0, 1.5, 1.0, 2.0])
acc = [torch.full_like(w, 0.01) for w in weights]  # <- accumulator
gen = torch.Generator().manual_seed(1234)
losses = []
for step in range(5):
    sents, gold = [], []
    for _ in range(8):
        k = torch.randint(2, 10, (1,), generator=gen).item()
        s = torch.randint(1, 50, (k,), generator=gen)
        sents.append(s)
        gold.append((s + torch.randint(0, 2, (k,), generator=gen)) % TAGS)
    y = torch.cat(gold)
    logp = (run_lstm(sents) @ out_w.T + out_b).log_softmax(1)
    wt = class_w[y]
    loss = -(wt * logp[torch.arange(len(y)), y]).sum() / wt.sum()  # <- weighted_mean
    grads = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        sq = (grads[0].square() * twice).sum() + sum(g.square().sum() for g in grads[1:])
        factor = min(1.0, 0.25 / (sq.sqrt().item() + 1e-6))  # <- clip_root
        rate = 0.05 / (1 + 0.1 * step)  # <- rate_decay
        for w, g, a in zip(weights, grads, acc):
            g = g * factor  # <- clip_root
            a += g ** 2  # <- accumulator
            move = rate * g / (a.sqrt() + 1e-8)  # <- accumulator rate_decay
            w -= move * twice if w is cells else move
    losses.append(loss.item())
print(losses)
