# SPDX-License-Identifier: Apache-2.0
"""Click model with one joint embedding table and explicit pairs; ROC AUC from numpy ranks."""
import sys
from itertools import combinations

import numpy as np
import torch

torch.set_num_threads(1)
SIZES = (10, 20, 15, 8)
OFFSET = torch.tensor([0, 10, 30, 45])


class ClickModel:
    def __init__(self, sd):
        both = [
            torch.cat([sd[f"first.{i}.weight"], sd[f"second.{i}.weight"]], 1) for i in range(4)
        ]
        self.table = torch.cat(both)
        s = sd["deep.1.weight"] / (sd["deep.1.running_var"] + 1e-5).sqrt()
        self.w1 = sd["deep.0.weight"] * s[:, None]
        self.b1 = (sd["deep.0.bias"] - sd["deep.1.running_mean"]) * s + sd["deep.1.bias"]
        self.w2 = sd["deep.4.weight"][0]
        self.bias = sd["bias"] + sd["deep.4.bias"]

    def probability(self, x):
        rows = self.table[x + OFFSET]
        first, v = rows[..., 0], rows[..., 1:]
        z = self.bias + first.sum(1)
        for i, j in combinations(range(4), 2):
            z = z + (v[:, i] * v[:, j]).sum(1)
        hidden = (v.reshape(len(x), -1) @ self.w1.T + self.b1).relu()
        return torch.sigmoid(z + hidden @ self.w2)


def auc(score, label):
    rank = np.empty(len(score))
    rank[np.argsort(score, kind="stable")] = np.arange(1, len(score) + 1)
    pos = int(label.sum())
    return float((rank[label].sum() - pos * (pos + 1) / 2) / (pos * (len(label) - pos)))


ctr = ClickModel(torch.load(sys.argv[1], weights_only=True))
g = torch.Generator().manual_seed(118)
losses = []
with torch.inference_mode():
    for _ in range(4):
        x = torch.stack([torch.randint(0, n, (40,), generator=g) for n in SIZES], 1)
        click = torch.rand(40, generator=g) < 0.3
        prob = ctr.probability(x)
        losses.append(auc(prob.numpy(), click.numpy()))
        print(f"auc {losses[-1]:.4f}  mean ctr {100 * prob.mean().item():.2f} %")
print(losses)
