# SPDX-License-Identifier: Apache-2.0
"""All ensemble members in batched matrix products; coverage of intervals, on a second set too."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
MEMBERS = 5


class StackedEnsemble:
    def __init__(self, sd):
        self.layers = [
            (
                torch.stack([sd[f"{m}.{n}.weight"].T for m in range(MEMBERS)]),
                torch.stack([sd[f"{m}.{n}.bias"] for m in range(MEMBERS)])[:, None],
            )
            for n in (0, 2, 4)
        ]

    def __call__(self, x):
        h = x.expand(MEMBERS, -1, -1)
        for n, (w, b) in enumerate(self.layers):
            h = torch.baddbmm(b, h, w)
            if n < 2:
                h = F.elu(h)
        mean, var = h[..., 0], F.softplus(h[..., 1]) + 1e-3
        spread = mean.var(0, correction=0)
        return mean.mean(0), var.mean(0) + spread, spread


def evaluate(model, seed, batches):
    g = torch.Generator().manual_seed(seed)
    for _ in range(batches):
        x = torch.randn(16, 5, generator=g)
        y = x[:, 0] * x[:, 1] + 0.2 * torch.randn(16, generator=g)
        mean, var, spread = model(x)
        inside = (y - mean).abs() <= 1.0 * var.sqrt()
        yield inside.double().mean().item(), spread.mean().item()


with torch.inference_mode():
    model = StackedEnsemble(torch.load(sys.argv[1], weights_only=True))
    for cover, spread in evaluate(model, 922, 2):
        print(f"validation: coverage {cover:.3f} disagreement {spread:.4f}")
    losses = []
    for cover, spread in evaluate(model, 122, 4):
        print(f"test: coverage {cover:.3f} disagreement {spread:.4f}")
        losses.append(cover)
print(losses)
