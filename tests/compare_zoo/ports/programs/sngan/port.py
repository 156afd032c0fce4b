# SPDX-License-Identifier: Apache-2.0
"""The same GAN by another hand: spectral norm as a class with a vector of its own, transposed
convolutions as convolutions of a stretched image, channels last, the labels' projection by einsum.
"""

import sys

import numpy as np
import torch
from torch import nn

N_LATENT, N_CLASSES, BASE, N_BATCH = 6, 4, 6, 4


def conv(x, kernel, stride, before, after):
    """Channels last; kernels are (rows, columns, in, out)."""
    rows, columns = kernel.shape[:2]
    x = nn.functional.pad(x, (0, 0, before, after, before, after))
    patches = x.unfold(1, rows, stride).unfold(2, columns, stride)
    return torch.einsum("nhwirc,rcio->nhwo", patches, kernel)  # <- turned


def stretched(x):
    """Zeros between all neighbours."""
    n, h, w, c = x.shape
    out = x.new_zeros(n, 2 * h - 1, 2 * w - 1, c)
    out[:, ::2, ::2] = x
    return out


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.offset = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x):
        mean, variance = self.running_mean, self.running_var
        if self.training:
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2), correction=0)  # <- statistics
            count = x.numel() / x.shape[-1]
            self.running_mean.lerp_(mean.detach(), 0.1)
            self.running_var.lerp_(variance.detach() * count / (count - 1), 0.1)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.scale + self.offset


class Painter(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.Parameter(torch.zeros(N_CLASSES, N_LATENT))
        self.first = nn.Parameter(torch.zeros(N_LATENT, 2, 2, 2 * BASE))
        self.norm0, self.norm1 = Norm(2 * BASE), Norm(BASE)
        self.grow = nn.Parameter(torch.zeros(4, 4, 2 * BASE, BASE))
        self.last, self.bias = (
            nn.Parameter(torch.zeros(4, 4, BASE, 3)),
            nn.Parameter(torch.zeros(3)),
        )

    def forward(self, z, y):
        h = torch.einsum("nl,lrco->nrco", z * self.classes[y], self.first)  # <- places
        h = self.norm0(h).relu()
        h = self.norm1(conv(stretched(h), self.grow, 1, 2, 2)).relu()  # <- turned
        return torch.tanh(conv(stretched(h), self.last, 1, 2, 2) + self.bias)


class Spectral(nn.Module):
    """A matrix divided by its largest singular value, as one power iteration a call finds it."""

    def __init__(self, rows, columns):
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(rows, columns))
        self.register_buffer("u", torch.zeros(rows))
        self.register_buffer("v", torch.zeros(columns))

    def forward(self):
        with torch.no_grad():
            v = self.matrix.T @ self.u  # <- iterated
            v = v / v.norm()  # <- iterated
            u = self.matrix @ v  # <- iterated
            u = u / u.norm()  # <- iterated
            self.u.copy_(u)  # <- iterated
        sigma = u @ self.matrix @ v  # <- sigma iterated
        return self.matrix / sigma  # <- sigma


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bias1 = Spectral(BASE, 27), nn.Parameter(torch.zeros(BASE))
        self.conv2, self.bias2 = Spectral(2 * BASE, 16 * BASE), nn.Parameter(torch.zeros(2 * BASE))
        self.score, self.offset = Spectral(1, 2 * BASE), nn.Parameter(torch.zeros(1))
        self.classes = Spectral(N_CLASSES, 2 * BASE)
        self.slope = 0.1

    def leaky(self, x):
        return torch.where(x > 0, x, self.slope * x)  # <- slope

    def forward(self, image, label):
        kernel = self.conv1().view(BASE, 3, 3, 3).permute(2, 3, 1, 0)
        h = self.leaky(conv(image, kernel, 1, 1, 1) + self.bias1)
        kernel = self.conv2().view(2 * BASE, BASE, 4, 4).permute(2, 3, 1, 0)
        h = self.leaky(conv(h, kernel, 2, 1, 1) + self.bias2)
        h = h.sum((1, 2))  # <- pooled
        alike = torch.einsum("nc,nc->n", h, self.classes()[label])  # <- projected
        return (h @ self.score().T + self.offset)[:, 0] + alike


def turned(kernel):
    """The kernel of a transposed convolution, (in, out, rows, columns), for the stretched image."""
    return kernel.flip(2, 3).permute(2, 3, 0, 1)  # <- turned


def painter(old):
    new = {
        "classes": old["label.weight"],
        "first": old["fc.weight"].view(2 * BASE, 2, 2, N_LATENT).permute(3, 1, 2, 0),  # <- places
        "grow": turned(old["up.weight"]),
        "last": turned(old["out.weight"]),
        "bias": old["out.bias"],
    }
    for n in range(2):
        new[f"norm{n}.scale"], new[f"norm{n}.offset"] = old[f"bn{n}.weight"], old[f"bn{n}.bias"]
        for statistic in ("running_mean", "running_var"):
            new[f"norm{n}.{statistic}"] = old[f"bn{n}.{statistic}"]
    return new


def critic(old):
    names = {"conv1": "conv1", "conv2": "conv2", "score": "fc", "classes": "label"}
    new = {f"{mine}.matrix": old[f"{name}.weight_orig"].flatten(1) for mine, name in names.items()}
    for part in "uv":
        new |= {f"{mine}.{part}": old[f"{name}.weight_{part}"] for mine, name in names.items()}
    biases = {"bias1": "conv1.bias", "bias2": "conv2.bias", "offset": "fc.bias"}
    return new | {mine: old[theirs] for mine, theirs in biases.items()}


def drawn(rng):
    z = torch.tensor(rng.normal(size=(N_BATCH, N_LATENT)).astype(np.float32))
    return z, torch.tensor(rng.integers(0, N_CLASSES, N_BATCH))


saved = torch.load(sys.argv[1])
paint, shadow, judge = Painter(), Painter(), Critic()
for model, state in ((paint, painter(saved["g"])), (shadow, painter(saved["g"]))):
    model.load_state_dict(state)
judge.load_state_dict(critic(saved["d"]))
betas = (0.0, 0.9)  # <- momentum
paint_adam = torch.optim.Adam(paint.parameters(), lr=2e-3, betas=betas, foreach=True)  # <- momentum
judge_adam = torch.optim.Adam(judge.parameters(), lr=4e-3, betas=betas, foreach=True)  # <- momentum
rng = np.random.default_rng(241)
losses = []
for _ in range(3):
    for _ in range(2):
        photo = torch.tensor(rng.uniform(-1, 1, (N_BATCH, 3, 8, 8)).astype(np.float32))
        labels = torch.tensor(rng.integers(0, N_CLASSES, N_BATCH))
        z, y = drawn(rng)
        painted = paint(z, y).detach()
        true = judge(photo.movedim(1, -1), labels)
        false = judge(painted, y)  # <- projected
        loss = (1 - true).clamp(min=0).mean() + (1 + false).clamp(min=0).mean()  # <- hinge
        judge_adam.zero_grad()
        loss.backward()
        judge_adam.step()  # <- momentum
        losses.append(loss.item())
    z, y = drawn(rng)
    loss = -judge(paint(z, y), y).mean()
    paint_adam.zero_grad()
    loss.backward()
    paint_adam.step()  # <- momentum
    with torch.no_grad():
        for name, value in shadow.state_dict().items():
            share = 1.0 if "running" in name else 0.2  # <- buffers
            value.lerp_(paint.state_dict()[name], share)  # <- buffers
    losses.append(loss.item())
shadow.eval()
with torch.no_grad():
    losses.append(shadow(z, y).square().mean().item())
