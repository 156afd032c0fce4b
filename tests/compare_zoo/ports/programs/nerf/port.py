# SPDX-License-Identifier: Apache-2.0
"""The same NeRF in a graphics team's style: all sines of a point at once, the density's integral in
logarithms, layers as a list of matrices, Adam written out over one flat vector of weights.
"""

import sys

import numpy as np
import torch

CLOSE, DISTANT, BINS, COUNT = 2.0, 6.0, 8, 12
SHAPES = [(27, 16), (16, 16), (16, 16), (43, 16), (16, 1), (16, 16), (31, 8), (8, 3)]
NAMES = [f"pts_linears.{n}" for n in range(4)]
NAMES += ["alpha_linear", "feature_linear", "views_linear", "rgb_linear"]


def waves(v, octaves):
    """(..., 3) to (..., 3 + 6 * octaves): v, then an octave's sines and cosines, octave by octave."""
    phase = v[..., None, None, :] * (2.0 ** torch.arange(octaves))[:, None, None]
    phase = phase + torch.tensor([0.0, torch.pi / 2])[:, None]
    return torch.cat([v, torch.sin(phase).flatten(-3)], dim=-1)  # <- bands


def unflattened(flat):
    layers, start = [], 0
    for inputs, outputs in SHAPES:
        matrix = flat[start : start + inputs * outputs].view(inputs, outputs)
        start += inputs * outputs
        layers.append((matrix, flat[start : start + outputs]))
        start += outputs
    return layers


def field(flat, points, looking):
    """Colour and density of every point."""
    *trunk, density, feature, view, colour = unflattened(flat)
    place, direction = waves(points, 4), waves(looking, 2)
    h = place
    for n, (matrix, bias) in enumerate(trunk):
        if n == 3:
            h = torch.cat([place, h], dim=-1)  # <- skip
        h = torch.relu(torch.addmm(bias, h.flatten(0, 1), matrix)).unflatten(0, points.shape[:2])
    sigma = torch.relu((h @ density[0] + density[1])[..., 0])
    h = h @ feature[0] + feature[1]  # <- feature
    h = torch.cat([h, direction], dim=-1)  # <- feature
    h = torch.relu(h @ view[0] + view[1])  # <- feature
    return torch.sigmoid(h @ colour[0] + colour[1]), sigma


def composite(rgb, sigma, depth, ray):
    """What a ray sees, over a white wall."""
    step = torch.diff(depth, dim=-1, append=torch.full((COUNT, 1), 1e10))  # <- last
    thickness = sigma * step * ray.norm(dim=-1, keepdim=True)  # <- metric
    before = torch.cumsum(thickness, dim=-1)[:, :-1]  # <- seen
    through = torch.exp(-torch.nn.functional.pad(before, (1, 0)))  # <- seen
    weight = through * -torch.expm1(-thickness)
    light = torch.einsum("rs,rsc->rc", weight, rgb)
    return light + (1.0 - weight.sum(-1, keepdim=True))  # <- white


def jittered(noise):
    """A depth in each bin; the bins meet half way between evenly spaced depths."""
    even = torch.linspace(CLOSE, DISTANT, BINS)
    edges = torch.cat([even[:1], (even[1:] + even[:-1]) / 2, even[-1:]])  # <- bins
    return torch.lerp(edges[:-1], edges[1:], noise)  # <- bins


def read(checkpoint):
    old = torch.load(checkpoint)
    parts = [old[f"{name}.{kind}"].T.reshape(-1) for name in NAMES for kind in ("weight", "bias")]
    return torch.cat(parts)


flat = read(sys.argv[1]).requires_grad_()
mean, square = torch.zeros_like(flat), torch.zeros_like(flat)
rng = np.random.default_rng(149)
losses = []
for t in range(1, 5):
    start = torch.tensor(rng.normal(0, 0.1, (COUNT, 3)).astype(np.float32))
    ray = torch.tensor(rng.normal(size=(COUNT, 3)).astype(np.float32))
    depth = jittered(torch.tensor(rng.random((COUNT, BINS), dtype=np.float32)))  # <- bins
    truth = torch.tensor(rng.random((COUNT, 3), dtype=np.float32))
    points = torch.einsum("rs,rc->rsc", depth, ray) + start[:, None]
    looking = (ray / ray.norm(dim=-1, keepdim=True))[:, None].expand(points.shape)
    rgb, sigma = field(flat, points / DISTANT, looking)
    loss = (composite(rgb, sigma, depth, ray) - truth).square().mean()
    (gradient,) = torch.autograd.grad(loss, flat)
    rate = 5e-3 * 0.1 ** ((t - 1) / 10)  # <- rate
    with torch.no_grad():
        mean = mean * 0.9 + gradient * 0.1
        square = square * 0.999 + gradient**2 * 0.001
        towards = mean / (1 - 0.9**t) / ((square / (1 - 0.999**t)).sqrt() + 1e-8)
        flat -= rate * towards  # <- rate
    losses.append(loss.item())
