# SPDX-License-Identifier: Apache-2.0
"""The same Glow as its authors' TensorFlow has it: channels last, variables by name in one dict,
convolutions as products over patches, the log determinant carried along.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

DEPTH, N_LEVELS, N_BINS, EDGE, N_BATCH = 2, 2, 32, 8, 4


def conv(v, name, x):
    """A 3x3 or a 1x1 convolution; kernels are (height, width, in, out)."""
    kernel = v[f"{name}/W"]
    reach = kernel.shape[0] // 2
    padded = F.pad(x, (0, 0, reach, reach, reach, reach))
    patches = padded.unfold(1, kernel.shape[0], 1).unfold(2, kernel.shape[1], 1)
    return torch.einsum("nhwiyx,yxio->nhwo", patches, kernel) + v[f"{name}/b"]


def squeeze(x):
    n, h, w, c = x.shape
    x = x.reshape(n, h // 2, 2, w // 2, 2, c)
    return x.permute(0, 1, 3, 5, 2, 4).reshape(n, h // 2, w // 2, c * 4)  # <- squeeze


def actnorm(v, name, x, started):
    if not started:
        with torch.no_grad():
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2), correction=0)  # <- spread
            v[f"{name}/b"].copy_(-mean)
            v[f"{name}/logs"].copy_(-torch.log(variance.sqrt() + 1e-6))  # <- spread
    _, h, w, _ = x.shape
    logs = v[f"{name}/logs"]
    return (x + v[f"{name}/b"]) * torch.exp(logs), h * w * logs.sum()  # <- places


def invertible(v, name, x):
    w = v[f"{name}/W"]
    return x @ w, x.shape[1] * x.shape[2] * torch.linalg.slogdet(w).logabsdet  # <- mixing


def coupling(v, name, x):
    z1, z2 = x.tensor_split(2, dim=-1)
    h = torch.relu(conv(v, f"{name}/1", z1))
    h = torch.relu(conv(v, f"{name}/2", h))
    h = conv(v, f"{name}/3", h)
    logit, shift = h.tensor_split(2, dim=-1)  # <- cross
    scale = torch.sigmoid(logit + 2.0)  # <- near_one
    z2 = (z2 + shift) * scale  # <- shift
    return torch.cat([z1, z2], dim=-1), scale.log().sum((1, 2, 3))


def gaussian(z, mean, logsd):
    off = (z - mean) ** 2 / torch.exp(2 * logsd)  # <- prior
    logp = -0.5 * (math.log(2 * math.pi) + 2 * logsd + off)  # <- prior
    return logp.sum((1, 2, 3))


def encode(v, x, started):
    objective = torch.zeros(x.shape[0])
    for level in range(N_LEVELS):
        x = squeeze(x)
        for flow in range(DEPTH):
            name = f"{level}/{flow}"
            x, det = actnorm(v, f"{name}/actnorm", x, started)
            objective = objective + det
            x, det = invertible(v, f"{name}/invconv", x)
            objective = objective + det
            x, det = coupling(v, f"{name}/coupling", x)
            objective = objective + det
        kept, given = (torch.zeros_like(x), x)
        if level + 1 < N_LEVELS:
            kept, given = x.tensor_split(2, dim=-1)
        mean, logsd = conv(v, f"{level}/prior", kept).tensor_split(2, dim=-1)  # <- prior
        objective = objective + gaussian(given, mean, logsd)
        x = kept
    return objective


def variables(old):
    v = {}
    for level in range(N_LEVELS):
        prior = f"blocks.{level}.prior"
        v[f"{level}/prior/W"] = old[f"{prior}.weight"].permute(2, 3, 1, 0)
        v[f"{level}/prior/b"] = old[f"{prior}.bias"]
        for flow in range(DEPTH):
            name = f"{level}/{flow}"
            norm, mix, couple = (f"blocks.{level}.flows.{3 * flow + k}" for k in range(3))
            v[f"{name}/actnorm/b"] = old[f"{norm}.loc"].flatten()
            v[f"{name}/actnorm/logs"] = old[f"{norm}.log_scale"].flatten()
            v[f"{name}/invconv/W"] = old[f"{mix}.weight"].T  # <- mixing
            for mine, theirs in (("1", "net.0"), ("2", "net.2"), ("3", "net.4")):
                kernel = old[f"{couple}.{theirs}.weight"].permute(2, 3, 1, 0)
                v[f"{name}/coupling/{mine}/W"] = kernel
                v[f"{name}/coupling/{mine}/b"] = old[f"{couple}.{theirs}.bias"]
    return {name: value.clone().requires_grad_() for name, value in v.items()}


v = variables(torch.load(sys.argv[1]))
trained = list(v.values())
first = [torch.zeros_like(w) for w in trained]
largest = [torch.zeros_like(w) for w in trained]
rng = np.random.default_rng(157)
losses = []
for t in range(1, 4):
    raw = torch.tensor(rng.integers(0, 256, (N_BATCH, 3, EDGE, EDGE))).permute(0, 2, 3, 1)
    noise = torch.tensor(rng.random((N_BATCH, 3, EDGE, EDGE), dtype=np.float32))
    x = (raw // 8) / N_BINS - 0.5  # <- bits
    x = x + noise.permute(0, 2, 3, 1) / N_BINS
    dimensions = 3 * EDGE * EDGE
    objective = encode(v, x, started=t > 1) - math.log(N_BINS) * dimensions  # <- bits
    loss = torch.mean(-objective) / (math.log(2.0) * dimensions)
    with torch.no_grad():
        gradients = torch.autograd.grad(loss, trained)
        for w, g, m, u in zip(trained, gradients, first, largest):
            m.lerp_(g, 0.1)
            u.copy_(torch.maximum(u * 0.999, g.abs() + 1e-8))
            w.sub_(2e-3 / (1 - 0.9**t) * m / u)
    losses.append(loss.item())
