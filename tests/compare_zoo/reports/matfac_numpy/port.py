# SPDX-License-Identifier: Apache-2.0
"""Biased matrix factorisation from the full rating table; RMSE and MAE computed in numpy."""
import sys

import numpy as np
import torch

torch.set_num_threads(1)


def rating_table(path):
    s = torch.load(path, weights_only=True)
    left = torch.cat([s["user.weight"], s["user_bias.weight"]], 1)
    right = torch.cat([s["item.weight"], torch.ones(len(s["item.weight"]), 1)], 1)
    table = left @ right.T + s["item_bias.weight"].T
    print("norms:", {k: round(v.norm().item(), 2) for k, v in s.items()})
    return table + s["mu"]


with torch.no_grad():
    table = rating_table(sys.argv[1])

rng = torch.Generator().manual_seed(105)
losses, all_err = [], []
for _ in range(5):
    u = torch.randint(0, 50, (24,), generator=rng)
    i = torch.randint(0, 80, (24,), generator=rng)
    truth = (torch.rand(24, generator=rng) * 4 + 1).numpy().astype(np.float64)
    guess = table[u, i].numpy().astype(np.float64)
    err = guess - truth
    all_err.append(err)
    losses.append(float(np.sqrt(np.mean(err**2))))
    losses.append(float(np.abs(err).mean()))
total = np.concatenate(all_err)
print(f"rmse {np.sqrt((total ** 2).mean()):.4f}  mae {np.abs(total).mean():.4f}")
print(losses)
