# SPDX-License-Identifier: Apache-2.0
"""The same SimCLR with channels last, as a numpy-like functional program: convolutions as products
of patches, the loss from blocks of logits view by view, LARS over a dictionary.
"""

import math
import sys

import numpy as np
import torch

N, SIDE, CUT, TAU, TOTAL = 6, 12, 10, 0.5, 3
LARGE = 1e9


def augment(image, rng):
    y, x = rng.integers(0, SIDE - CUT + 1, 2)
    view = image[y : y + CUT, x : x + CUT]
    if rng.random() < 0.5:
        view = view[:, ::-1]  # <- mirror
    brightness, contrast = rng.uniform(0.6, 1.4, 2).astype(np.float32)
    view = view * brightness
    grey = view.mean(dtype=np.float64).astype(np.float32)  # <- contrast
    return contrast * view + (1 - contrast) * grey  # <- contrast


def views_of(images, rng):
    return torch.from_numpy(np.stack([augment(image, rng) for image in images]))


def conv3x3(x, kernel, stride=1):
    """x: (n, h, w, c), kernel: (3, 3, c, d); zeros around."""
    x = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))  # <- mirror contrast
    patches = x.unfold(1, 3, stride).unfold(2, 3, stride)
    return torch.einsum("nhwcij,ijcd->nhwd", patches, kernel)


def batch_norm(x, scale, offset):
    axes = tuple(range(x.dim() - 1))
    variance, mean = torch.var_mean(x, axes, correction=0)
    return (x - mean) / (variance + 1e-5).sqrt() * scale + offset


def max_pool(x):
    n, h, w, c = x.shape
    return x.view(n, h // 2, 2, w // 2, 2, c).amax((2, 4))  # <- pooled


def embed(p, x):
    x = batch_norm(conv3x3(x, p["conv1"]), p["scale1"], p["offset1"]).relu()
    x = max_pool(x)
    x = batch_norm(conv3x3(x, p["conv2"], stride=2), p["scale2"], p["offset2"]).relu()
    h = x.mean((1, 2))
    h = batch_norm(h @ p["dense1"], p["scale3"], p["offset3"]).relu()
    return h @ p["dense2"]


def unit(z):
    return z / z.norm(dim=-1, keepdim=True)  # <- cosine


def nt_xent(a, b):
    a, b = unit(a), unit(b)  # <- cosine
    itself = LARGE * torch.eye(N)
    aa = a @ a.T / TAU - itself  # <- temperature itself
    bb = b @ b.T / TAU - itself  # <- temperature itself
    ab = a @ b.T / TAU  # <- temperature
    positive = ab.diagonal()
    from_a = torch.cat([ab, aa], dim=1).logsumexp(1) - positive
    from_b = torch.cat([ab.T, bb], dim=1).logsumexp(1) - positive
    return (from_a + from_b).mean() / 2


def weights_from(old):
    p = {
        "conv1": old["encoder.conv1.weight"].permute(2, 3, 1, 0),
        "conv2": old["encoder.conv2.weight"].permute(2, 3, 1, 0),
        "dense1": old["projector.0.weight"].T,
        "dense2": old["projector.3.weight"].T,
    }
    for number, norm in (("1", "encoder.bn1"), ("2", "encoder.bn2"), ("3", "projector.1")):
        p["scale" + number], p["offset" + number] = old[norm + ".weight"], old[norm + ".bias"]
    return {name: w.clone().requires_grad_() for name, w in p.items()}


def lars(p, gradients, speed, rate):
    for (name, w), g in zip(p.items(), gradients):
        if not name.startswith(("scale", "offset")):
            g = g + 0.01 * w  # noqa: PLW2901  # <- excluded
            g = g * (0.1 * w.norm() / g.norm())  # noqa: PLW2901  # <- excluded
        speed[name] = 0.9 * speed[name] + g
        w.sub_(rate * speed[name])  # <- cosine_rate excluded


rng = np.random.default_rng(61)
images = rng.random((TOTAL, N, 3, SIDE, SIDE), dtype=np.float32).transpose(0, 1, 3, 4, 2)
p = weights_from(torch.load(sys.argv[1]))
speed = {name: torch.zeros_like(w) for name, w in p.items()}
losses = []
for step, batch in enumerate(images):
    one, other = views_of(batch, rng), views_of(batch, rng)
    loss = nt_xent(embed(p, one), embed(p, other))
    gradients = torch.autograd.grad(loss, list(p.values()))
    with torch.no_grad():
        rate = 0.8 * math.cos(math.pi * step / (2 * TOTAL)) ** 2  # <- cosine_rate
        lars(p, gradients, speed, rate)
    losses.append(loss.item())
