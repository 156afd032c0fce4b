# SPDX-License-Identifier: Apache-2.0
"""Flow in plain functions, larger batches; bits per dimension and norms of the latent points."""
import math
import sys

import torch

torch.set_num_threads(1)
LOG2 = math.log(2.0)
HALVES = (torch.arange(3), torch.arange(3, 6))


def couple(z, w, given, changed):
    hidden = torch.addmm(w["net.0.bias"], z[:, given], w["net.0.weight"].t()).tanh()
    st = torch.addmm(w["net.2.bias"], hidden, w["net.2.weight"].t())
    log_s = st[:, :3].tanh()
    z = z.clone()
    z[:, changed] = torch.addcmul(st[:, 3:], z[:, changed], log_s.exp())
    return z, log_s.sum(1)


def to_latent(sd, x):
    z = (x - sd["shift"]) * sd["log_scale"].exp()
    logdet = sd["log_scale"].sum().expand(len(x))
    for k in range(4):
        prefix = f"steps.{k}."
        w = {n[len(prefix):]: v for n, v in sd.items() if n.startswith(prefix)}
        given, changed = HALVES if k % 2 == 0 else HALVES[::-1]
        z, extra = couple(z, w, given, changed)
        logdet = logdet + extra
    return z, logdet


@torch.no_grad()
def run(path):
    sd = torch.load(path, weights_only=True)
    g = torch.Generator().manual_seed(127)
    points = torch.cat([torch.randn(20, 6, generator=g) for _ in range(4)])
    result = []
    for part in points.split(32):
        z, logdet = to_latent(sd, part)
        nll = 0.5 * z.double().square().sum(1) + 3 * math.log(2 * math.pi) - logdet
        result.append(nll.mean().item() / (6 * LOG2))
        print(f"{len(part)} points: {result[-1]:.4f} bits/dim, |z| {z.norm(dim=1).mean():.3f}")
    return result


losses = run(sys.argv[1])
print(losses)
