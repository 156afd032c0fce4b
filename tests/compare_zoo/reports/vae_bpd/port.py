# SPDX-License-Identifier: Apache-2.0
"""VAE in plain functions, after a dummy pass of ones; bits per pixel of every image, and KL."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
s = torch.load(sys.argv[1], weights_only=True)
stats_w = torch.cat([s["mean.weight"], s["logvar.weight"]])
stats_b = torch.cat([s["mean.bias"], s["logvar.bias"]])


def encode(x):
    h = F.linear(x, s["enc.0.weight"], s["enc.0.bias"])
    h = (h - s["enc.1.running_mean"]) * (s["enc.1.running_var"] + 1e-5).rsqrt()
    h = F.softplus(h * s["enc.1.weight"] + s["enc.1.bias"])
    return F.linear(h, stats_w, stats_b).chunk(2, dim=1)


def decode(z):
    h = F.linear(z, s["dec.0.weight"], s["dec.0.bias"]).tanh()
    return F.linear(h, s["dec.2.weight"], s["dec.2.bias"])


def parts(x, eps):
    mu, logvar = encode(x)
    logits = decode(mu + eps * (logvar / 2).exp())
    rec = (F.softplus(logits) - x * logits).sum(1)
    kl = 0.5 * (logvar.exp() + mu.square() - 1 - logvar).sum(1)
    return rec, kl


losses = []
with torch.inference_mode():
    parts(torch.ones(10, 64), torch.zeros(10, 6))
    g = torch.Generator().manual_seed(112)
    for _ in range(4):
        x = (torch.rand(10, 64, generator=g) < 0.3).float()
        eps = torch.randn(10, 6, generator=g)
        rec, kl = parts(x, eps)
        losses += ((rec + kl) / (64 * math.log(2))).tolist()
        print(f"kl {kl.mean().item():.3f}  bits per pixel {sum(losses[-10:]) / 10:.4f}")
print(losses)
