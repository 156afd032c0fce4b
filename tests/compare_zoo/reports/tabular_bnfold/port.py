# SPDX-License-Identifier: Apache-2.0
"""Deployment version: batch norms folded into the linear layers, reports the accuracy."""
import sys

import torch

torch.set_num_threads(1)
EPS = 1e-5


def fold(sd, fc, bn):
    scale = sd[bn + ".weight"] / torch.sqrt(sd[bn + ".running_var"] + EPS)
    weight = sd[fc + ".weight"] * scale[:, None]
    bias = (sd[fc + ".bias"] - sd[bn + ".running_mean"]) * scale + sd[bn + ".bias"]
    return weight.t().contiguous(), bias


state = torch.load(sys.argv[1], weights_only=True)
layers = [
    fold(state, "fc1", "bn1"),
    fold(state, "fc2", "bn2"),
    (state["head.weight"].t(), state["head.bias"]),
]
print("parameters after folding:", sum(w.numel() + b.numel() for w, b in layers))


def predict(x):
    for w, b in layers[:-1]:
        x = torch.addmm(b, x, w).clamp_min(0)
    w, b = layers[-1]
    return torch.addmm(b, x, w)


gen = torch.Generator().manual_seed(101)
losses = []
with torch.inference_mode():
    for _ in range(4):
        x = torch.randn(32, 12, generator=gen)
        y = torch.randint(0, 5, (32,), generator=gen)
        hit = predict(x).argmax(1).eq(y)
        losses.append(100.0 * hit.sum().item() / len(y))
print("accuracy in percent:", [f"{a:.1f}" for a in losses])
print(losses)
