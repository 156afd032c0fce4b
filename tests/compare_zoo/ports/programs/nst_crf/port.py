# SPDX-License-Identifier: Apache-2.0
"""Sequence labeller on padded batches: own LSTM cell, and a chain of transition matrices."""
import sys

import torch

V, K, T, B = 30, 5, 9, 6
w = {k: t.clone().requires_grad_() for k, t in torch.load(sys.argv[1], weights_only=True).items()}


def run_lstm(x, suffix):
    """x [B, T, E] -> [B, T, H]"""
    wi, wh = w["lstm.weight_ih_l0" + suffix], w["lstm.weight_hh_l0" + suffix]
    bias = w["lstm.bias_ih_l0" + suffix] + w["lstm.bias_hh_l0" + suffix]
    pre = torch.einsum("bte,ge->btg", x, wi) + bias
    n = wh.shape[1]
    h = c = torch.zeros(x.shape[0], n)
    outs = []
    for t in range(x.shape[1]):
        gates = pre[:, t] + h @ wh.t()
        i, f, g, o = gates.split(n, dim=1)  # <- gate_order
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # <- gate_order
        h = torch.sigmoid(o) * torch.tanh(c)  # <- gate_order
        outs.append(h)
    return torch.stack(outs, 1)


def flip_inside(length):
    """Positions that turn every sentence round and leave its padding behind it."""
    pos = torch.arange(T).expand(B, T)
    return torch.where(pos < length[:, None], length[:, None] - 1 - pos, pos)  # <- back_start


def encode(words, length):
    x = w["embed.weight"][words] * (words != 0).unsqueeze(-1)
    turn = flip_inside(length).unsqueeze(-1)
    forth = run_lstm(x, "")
    back = run_lstm(x.take_along_dim(turn, 1), "_reverse")  # <- back_start
    back = back.take_along_dim(turn, 1)  # <- back_start
    return torch.cat([forth, back], -1) @ w["hidden2tag.weight"].t() + w["hidden2tag.bias"]


def log_partition(e, valid):
    """Each step is a K x K matrix in the log semiring, padding the identity."""
    start, end = w["crf.start_transitions"], w["crf.end_transitions"]
    move = w["crf.transitions"]
    identity = torch.full((K, K), -1e9).fill_diagonal_(0.0)
    steps = move + e[:, 1:, None, :]
    steps = torch.where(valid[:, 1:, None, None], steps, identity)
    chain = list(steps.unbind(1))
    while len(chain) > 1:
        paired = [torch.logsumexp(a[:, :, :, None] + b[:, None], 2)
                  for a, b in zip(chain[::2], chain[1::2])]
        chain = paired + chain[2 * len(paired):]
    full = (start + e[:, 0])[:, :, None] + chain[0] + end
    return full.flatten(1).logsumexp(1)


def path_score(e, y, valid, length):
    unary = e.gather(2, y.unsqueeze(2)).squeeze(2)
    binary = w["crf.transitions"][y[:, :-1], y[:, 1:]]  # <- from_to
    s = (unary * valid).sum(1) + (binary * valid[:, 1:]).sum(1)  # <- from_to
    last = y.gather(1, (length - 1).unsqueeze(1)).squeeze(1)  # <- end_tag
    return s + w["crf.start_transitions"][y[:, 0]] + w["crf.end_transitions"][last]  # <- end_tag


buf = {}
gen = torch.Generator().manual_seed(31)
losses = []
for step in range(4):
    length = torch.randint(3, 9, (B,), generator=gen)
    length[step] = T
    words = torch.randint(1, V, (T, B), generator=gen)
    y = (words + torch.randint(0, 2, (T, B), generator=gen)) % K
    valid = torch.arange(T) < length.unsqueeze(1)
    words = words.t() * valid
    e = encode(words, length)
    nll = log_partition(e, valid) - path_score(e, y.t(), valid, length)
    loss = nll.sum() / length.sum()  # <- token_mean
    grads = torch.autograd.grad(loss, list(w.values()))
    with torch.no_grad():
        for (k, p), g in zip(w.items(), grads):
            buf[k] = g if step == 0 else 0.5 * buf[k] + g
            p.add_(buf[k], alpha=-0.5)
    losses.append(loss.item())
print(losses)
