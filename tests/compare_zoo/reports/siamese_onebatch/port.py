# SPDX-License-Identifier: Apache-2.0
"""Glyph verification, both sides in one batch with folded norm; cosine gap and best accuracy."""
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
w = torch.load(sys.argv[1], weights_only=True)
k = w["b1.weight"] * (w["b1.running_var"] + 1e-5).rsqrt()
conv_w = w["c1.weight"] * k.view(-1, 1, 1, 1)
conv_b = (w["c1.bias"] - w["b1.running_mean"]) * k + w["b1.bias"]


def embed(x):
    x = F.conv2d(x, conv_w, conv_b)
    x = torch.where(x > 0, x, 0.1 * x)
    x = x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-2, -1))
    x = F.leaky_relu(F.conv2d(x, w["c2.weight"], w["c2.bias"]), 0.1)
    rows = torch.stack([x[:, :, :2].amax(2), x[:, :, 1:].amax(2)], 2)
    x = torch.stack([rows[..., :2].amax(-1), rows[..., 1:].amax(-1)], -1)
    x = x.reshape(len(x), -1) @ w["fc.weight"].t() + w["fc.bias"]
    return x / x.norm(dim=1, keepdim=True)


def best_accuracy(sim, same):
    return max(float(((sim >= cut) == same).mean()) for cut in np.append(sim, 2.0))


g = torch.Generator().manual_seed(115)
losses = []
with torch.inference_mode():
    for _ in range(4):
        left = torch.randn(9, 1, 12, 12, generator=g)
        same = torch.rand(9, generator=g) < 0.5
        other = torch.randn(9, 1, 12, 12, generator=g)
        right = torch.where(same.view(-1, 1, 1, 1), left + 0.4 * other, other)
        a, b = embed(torch.cat([left, right])).chunk(2)
        sim, mask = (a * b).sum(1).numpy(), same.numpy()
        gap = float(sim[mask].mean() - sim[~mask].mean())
        losses += [gap, best_accuracy(sim, mask)]
        print(f"cosine gap {gap:.4f}  best accuracy {losses[-1]:.3f}")
print(losses)
