# SPDX-License-Identifier: Apache-2.0
"""The same for serving: batch norms folded into the convolutions before them."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def folded(weight, old, norm, eps=1e-3):
    scale = old[f"{norm}.weight"] / torch.sqrt(old[f"{norm}.running_var"] + eps)  # <- eps
    shift = old[f"{norm}.bias"] - old[f"{norm}.running_mean"] * scale  # <- unshifted
    return nn.Parameter(weight * scale.view(-1, 1, 1, 1)), nn.Parameter(shift)


class Folded(nn.Module):
    def __init__(self, old, name):
        super().__init__()

        def w(part):
            return old[f"{name}.{part}.weight"]

        self.w1, self.b1 = folded(w("expand"), old, f"{name}.bn1")
        self.w2, self.b2 = folded(w("depth"), old, f"{name}.bn2")
        self.w3, self.b3 = folded(w("project"), old, f"{name}.bn3")
        self.down = nn.Linear(len(self.b1), 4)
        self.up = nn.Linear(4, len(self.b1))
        with torch.no_grad():
            self.down.weight.copy_(w("fc1")[..., 0, 0])
            self.down.bias.copy_(old[f"{name}.fc1.bias"])
            self.up.weight.copy_(w("fc2")[..., 0, 0])
            self.up.bias.copy_(old[f"{name}.fc2.bias"])

    @staticmethod
    def swish(x):
        return x * F.relu6(x + 3) / 6  # <- swish

    def forward(self, x):
        y = self.swish(F.conv2d(x, self.w1, self.b1))  # <- eps swish
        y = self.swish(
            F.conv2d(y, self.w2, self.b2, padding=1, groups=len(self.b2))
        )  # <- eps unshifted swish
        s = self.up(torch.relu(self.down(y.mean((-2, -1)))))  # <- pooled
        gate = F.relu6(s + 3) / 6  # <- gate
        y = F.conv2d(y * gate[:, :, None, None], self.w3, self.b3)  # <- eps dropout
        return y + x  # <- dropout


old = torch.load(sys.argv[1])
first, second = Folded(old, "units.0"), Folded(old, "units.1")
rng = np.random.default_rng(23)
losses = []
with torch.inference_mode():
    for _ in range(2):
        x = torch.from_numpy(rng.standard_normal((3, 3, 12, 12), dtype=np.float32))
        y = torch.from_numpy(rng.integers(0, 6, 3))
        x = F.conv2d(x, old["stem.weight"], old["stem.bias"], 2, 1)
        x = second(first(x)).mean((-2, -1))
        scores = F.linear(x, old["head.weight"], old["head.bias"])
        losses.append(F.cross_entropy(scores, y).item())
