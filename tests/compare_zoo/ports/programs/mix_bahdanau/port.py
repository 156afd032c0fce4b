# SPDX-License-Identifier: Apache-2.0
"""Additive-attention translator with hand-rolled GRU cells, time-major, fused gate matrices."""

import sys
from collections import namedtuple

import torch
from torch import sigmoid, tanh

V, H, BEGIN = 15, 12, 1
Cell = namedtuple("Cell", "w_x w_h b_x b_h")
state = torch.load(sys.argv[1], weights_only=True)
leaves = []


def take(name, transpose=False):
    t = state[name]
    leaf = (t.t() if transpose else t).clone().requires_grad_()
    leaves.append(leaf)
    return leaf


def take_cell(prefix):
    return Cell(
        take(prefix + ".weight_ih_l0", True),
        take(prefix + ".weight_hh_l0", True),
        take(prefix + ".bias_ih_l0"),
        take(prefix + ".bias_hh_l0"),
    )


src_table, tgt_table = take("encoder.embedding.weight"), take("decoder.embedding.weight")
enc, dec = take_cell("encoder.gru"), take_cell("decoder.gru")
w_q, b_q = take("decoder.attention.Wa.weight", True), take("decoder.attention.Wa.bias")
w_k, b_k = take("decoder.attention.Ua.weight", True), take("decoder.attention.Ua.bias")
energy = take("decoder.attention.Va.weight")[0]
w_o, b_o = take("decoder.out.weight", True), take("decoder.out.bias")


def gru_step(c, x, h):
    xr, xz, xn = (x @ c.w_x + c.b_x).split(H, -1)
    hr, hz, hn = (h @ c.w_h + c.b_h).split(H, -1)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    n = tanh(xn + r * hn)  # <- reset_gate
    return n + z * (h - n)


def attend(h, memory, mem_proj, alive):
    """memory and mem_proj are (S, B, H); alive is (S, B)."""
    e = (tanh(h @ w_q + b_q + mem_proj) * energy).sum(-1)
    e = torch.exp(e - e.amax(0)) * alive  # <- source_mask
    return ((e / e.sum(0)).unsqueeze(-1) * memory).sum(0)  # <- source_mask


def run(src, tgt):
    src, tgt = src.t(), tgt.t()
    h = torch.zeros(src.shape[1], H)
    memory = []
    for tok in src:
        h = gru_step(enc, src_table[tok], h)
        memory.append(h)
    memory = torch.stack(memory)
    mem_proj = memory @ w_k + b_k
    alive = (src != 0).float()
    fed = tgt.roll(1, 0).clone()  # <- forced_shift
    fed[0] = BEGIN  # <- forced_shift
    total = torch.zeros(())
    first = h
    for prev, gold in zip(fed, tgt):
        ctx = attend(h, memory, mem_proj, alive)  # <- stale_query
        h = gru_step(dec, torch.cat([tgt_table[prev], ctx], -1), h)  # <- forced_shift
        logp = (h @ w_o + b_o).log_softmax(-1)
        picked = logp[torch.arange(len(gold)), gold]
        total = total - (picked * (gold != 0)).sum()
    return total / (tgt != 0).sum()


def batch_from(gen):
    out = []
    for length in (9, 7):
        words = torch.randint(2, V, (6, length), generator=gen)
        size = torch.randint(3, length + 1, (6, 1), generator=gen)
        out.append(words * (torch.arange(length)[None] < size))
    return out


gen = torch.Generator().manual_seed(21)
data = [batch_from(gen) for _ in range(4)]
losses = []
for src, tgt in data:
    loss = run(src, tgt)
    grads = torch.autograd.grad(loss, leaves)
    norm = torch.cat([g.flatten() for g in grads]).norm()  # <- clip_each
    shrink = (0.5 / (norm + 1e-6)).clamp(max=1.0)  # <- clip_each
    with torch.no_grad():
        for w, g in zip(leaves, grads):
            w -= 0.3 * shrink * g
    losses.append(loss.item())
print(losses)
