# SPDX-License-Identifier: Apache-2.0
"""Hand-written recurrent LM: one joint kernel per layer, gates in the order i, j, f, o."""
import sys
from typing import NamedTuple

import torch

VOCAB, WIDTH, ROWS, WINDOW = 23, 12, 4, 6
FORGET_BIAS = 1.0


class State(NamedTuple):
    c: torch.Tensor
    h: torch.Tensor


def import_layer(ckpt, k):
    """torch keeps i, f, g, o as rows; we keep i, j, f, o as columns, inputs above the state."""
    joint = torch.cat([ckpt[f"rnn.weight_ih_l{k}"], ckpt[f"rnn.weight_hh_l{k}"]], dim=1)
    bias = ckpt[f"rnn.bias_ih_l{k}"] + ckpt[f"rnn.bias_hh_l{k}"]
    i, f, j, o = joint.chunk(4, dim=0)
    bi, bf, bj, bo = bias.chunk(4)
    kernel = torch.cat([i, j, f, o], dim=0).t().contiguous()
    bias = torch.cat([bi, bj, bf - FORGET_BIAS, bo])  # <- forget_bias
    return kernel, bias


def cell(x, state, kernel, bias):
    z = torch.cat([x, state.h], dim=1).matmul(kernel) + bias  # <- carried_layer
    i, j, f, o = z.split(WIDTH, dim=1)
    keep = torch.sigmoid(f + FORGET_BIAS)  # <- forget_bias
    c = keep * state.c + torch.sigmoid(i) * torch.tanh(j)  # <- carried_layer
    return State(c, torch.sigmoid(o) * torch.tanh(c))


def unroll(weights, ids, states):
    """ids [rows, time] -> logits [rows, time, vocab] and the last states."""
    states = list(states)
    table = weights["embed"]
    tops = []
    for t in range(ids.shape[1]):
        x = table[ids[:, t]]
        for k in range(len(states)):
            states[k] = cell(x, states[k], *weights["layers"][k])  # <- carried_layer
            x = states[k].h
        tops.append(x)
    logits = torch.stack(tops, dim=1) @ table.t() + weights["out_bias"]  # <- untied_gradient
    return logits, states


def cross_entropy(logits, wanted):
    picked = logits.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
    return (torch.logsumexp(logits, dim=-1) - picked).mean()


def shrink(grads, limit=0.25):
    norm = torch.sqrt(sum(g.square().sum() for g in grads))  # <- clip_scope
    return torch.clamp(limit / (norm + 1e-6), max=1.0)


def windows(stream, count=5):
    for k in range(count):
        at = k * WINDOW  # <- chunk_stride
        yield stream[:, at:at + WINDOW], stream[:, at + 1:at + WINDOW + 1]  # <- chunk_stride


ckpt = torch.load(sys.argv[1], weights_only=True)
weights = {
    "embed": ckpt["encoder.weight"].clone().requires_grad_(),
    "out_bias": ckpt["decoder.bias"].clone().requires_grad_(),
    "layers": [tuple(w.requires_grad_() for w in import_layer(ckpt, k)) for k in range(2)],
}
# the checkpoint has two biases a layer which get the same gradient: ours moves by both
leaves = [(weights["embed"], 1.0), (weights["out_bias"], 1.0)]
for kernel, bias in weights["layers"]:
    leaves += [(kernel, 1.0), (bias, 2.0)]

rng = torch.Generator().manual_seed(1111)
stream = torch.randint(0, VOCAB, (ROWS * 31,), generator=rng).reshape(ROWS, 31)

zero = torch.zeros(ROWS, WIDTH)
states = [State(zero, zero) for _ in range(2)]
losses = []
for ids, wanted in windows(stream):
    states = [State(s.c.detach(), s.h.detach()) for s in states]  # <- carried_layer
    logits, states = unroll(weights, ids, states)
    loss = cross_entropy(logits, wanted)
    grads = torch.autograd.grad(loss, [leaf for leaf, _ in leaves])
    counted = [g * times ** 0.5 for g, (_, times) in zip(grads, leaves)]
    factors = [shrink(counted) for _ in grads]  # <- clip_scope
    with torch.no_grad():
        for (leaf, times), g, factor in zip(leaves, grads, factors):
            leaf -= 4.0 * times * factor * g  # <- clip_scope
    losses.append(loss.item())
print(losses)
