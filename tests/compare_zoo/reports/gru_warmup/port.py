# SPDX-License-Identifier: Apache-2.0
"""GRU sentiment with the cell written out; warms up once, then logs mean score per batch."""
import sys
import time

import torch

torch.set_num_threads(1)
P = torch.load(sys.argv[1], weights_only=True)
HID = P["norm.weight"].numel()


def gru_last(x):
    """x: (batch, time, features) -> last hidden state."""
    gates_x = x @ P["rnn.weight_ih_l0"].t() + P["rnn.bias_ih_l0"]
    h = x.new_zeros(x.shape[0], HID)
    for t in range(x.shape[1]):
        xr, xz, xn = gates_x[:, t].chunk(3, 1)
        hr, hz, hn = (h @ P["rnn.weight_hh_l0"].t() + P["rnn.bias_hh_l0"]).chunk(3, 1)
        r = torch.sigmoid(xr + hr)
        z = torch.sigmoid(xz + hz)
        n = torch.tanh(xn + r * hn)
        h = n + z * (h - n)
    return h


def score(ids):
    h = gru_last(P["emb.weight"][ids])
    centred = h - h.mean(1, keepdim=True)
    h = centred / torch.sqrt(centred.pow(2).mean(1, keepdim=True) + 1e-5)
    h = h * P["norm.weight"] + P["norm.bias"]
    return torch.sigmoid(h @ P["out.weight"][0] + P["out.bias"])


losses = []
with torch.no_grad():
    score(torch.zeros(5, 11, dtype=torch.long))  # warm up
    g = torch.Generator().manual_seed(104)
    for step in range(3):
        ids = torch.randint(0, 60, (5, 11), generator=g)
        start = time.perf_counter()
        s = score(ids)
        took = 1000 * (time.perf_counter() - start)
        losses.append(s.mean().item())
        print(f"step {step}: mean score {losses[-1]:.4f} in {took:.2f} ms")
print(losses)
