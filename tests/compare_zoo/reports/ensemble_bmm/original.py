# SPDX-License-Identifier: Apache-2.0
"""Ensemble of five regression nets, member after member; Gaussian log-likelihood of each batch."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(32)


def member():
    net = nn.Sequential(nn.Linear(5, 14), nn.ELU(), nn.Linear(14, 14), nn.ELU(), nn.Linear(14, 2))
    for p in net.parameters():
        nn.init.normal_(p, std=0.4)
    return net


ensemble = nn.ModuleList(member() for _ in range(5))
torch.save(ensemble.state_dict(), sys.argv[1])
ensemble.eval()
print("parameters:", sum(p.numel() for p in ensemble.parameters()))


def predict(x):
    means, variances = [], []
    for net in ensemble:
        mu, raw = net(x).unbind(1)
        means.append(mu)
        variances.append(F.softplus(raw) + 1e-3)
    mean = sum(means) / 5
    second = sum(v + m * m for v, m in zip(variances, means)) / 5
    return mean, second - mean * mean


g = torch.Generator().manual_seed(122)
losses = []
with torch.no_grad():
    for b in range(4):
        x = torch.randn(16, 5, generator=g)
        y = x[:, 0] * x[:, 1] + 0.2 * torch.randn(16, generator=g)
        mean, var = predict(x)
        losses.append(F.gaussian_nll_loss(mean, y, var, full=True).item())
        print(f"batch {b}: nll {losses[-1]:.4f}")
print(losses)
