# SPDX-License-Identifier: Apache-2.0
"""Diffusion model, all time steps in one batch; signal-to-noise of the estimated clean images."""
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
STEPS = (5, 15, 25, 40)


def conditioning(p, steps):
    freq = np.exp(-np.log(1000.0) * np.arange(4) / 4)
    angle = np.outer(steps, freq)
    emb = torch.from_numpy(np.hstack([np.sin(angle), np.cos(angle)])).float()
    return F.linear(emb, p["time.weight"], p["time.bias"]).view(len(steps), 2, 8, 1, 1)


def predict_noise(p, x, cond):
    h = F.conv2d(x, p["inp.weight"], p["inp.bias"], padding=1)
    grouped = h.reshape(len(x), 4, -1)
    var, mean = torch.var_mean(grouped, -1, keepdim=True, correction=0)
    unit = ((grouped - mean) * (var + 1e-5).rsqrt()).view_as(h)
    weight, bias = p["norm.weight"].view(8, 1, 1), p["norm.bias"].view(8, 1, 1)
    z = unit * weight + bias
    z = z + z * cond[:, 0] + cond[:, 1]
    z = z * z.sigmoid()
    halves = [
        F.conv2d(zi, wi, bi, padding=1)
        for zi, wi, bi in zip(z.chunk(2, 1), p["mid.weight"].chunk(2), p["mid.bias"].chunk(2))
    ]
    h = h + torch.cat(halves, 1)
    return F.conv2d(h * h.sigmoid(), p["out.weight"], p["out.bias"], padding=1)


with torch.inference_mode():
    params = torch.load(sys.argv[1], weights_only=True)
    g = torch.Generator().manual_seed(123)
    clean, noise = [], []
    for _ in STEPS:
        clean.append(torch.rand(6, 1, 8, 8, generator=g) * 2 - 1)
        noise.append(torch.randn(6, 1, 8, 8, generator=g))
    clean, noise = torch.cat(clean), torch.cat(noise)
    alpha_bar = torch.linspace(0.999, 0.9, 50).cumprod(0)
    a = alpha_bar[list(STEPS)].repeat_interleave(6).view(-1, 1, 1, 1)
    noisy = a.sqrt() * clean + (1 - a).sqrt() * noise
    cond = conditioning(params, STEPS).repeat_interleave(6, 0)
    eps = predict_noise(params, noisy, cond)
    estimate = ((noisy - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-1, 1)
    mse = (estimate - clean).double().pow(2).mean((1, 2, 3)).numpy()
    losses = (10 * np.log10(4.0 / mse)).tolist()
for k, t in enumerate(STEPS):
    print(f"t={t}: psnr {np.mean(losses[6 * k:6 * k + 6]):.2f} dB")
print(losses)
