# SPDX-License-Identifier: Apache-2.0
"""The same pair of networks as functions of dictionaries: features are scaled before and after one
shared convolution instead of the weights, plain logarithms of sigmoids, Adam without a mean.
"""

import sys

import numpy as np
import torch
from torch.nn import functional as F

LATENT, WIDTH, MAPS, N = 12, 12, 10, 6
ROOT2 = 2**0.5


def activate(x):
    return torch.where(x < 0, x * 0.2, x) * ROOT2  # <- gain


def dense(x, p, name, multiplier=1.0):
    weight, bias = p[name + ".weight"], p[name + ".bias"]
    fan_in = weight.shape[0]
    return x @ weight * (multiplier / fan_in**0.5) + bias * multiplier  # <- lrmul gain


def convolve(x, kernel):
    fan_in = kernel[0].numel()
    return F.conv2d(x, kernel * fan_in**-0.5, padding="same")


def modulated(x, w, p, name, *, normalised):
    kernel = p[name + ".weight"]
    style = dense(w, p, name + ".style")
    y = convolve(x * style[:, :, None, None], kernel)
    if normalised:
        power = torch.einsum("oikl,ni->no", kernel**2, style**2) / kernel[0].numel()  # <- demod
        y = y / torch.sqrt(power + 1e-8)[:, :, None, None]  # <- demod
    return y


def styled(x, w, p, name, noise):
    y = modulated(x, w, p, name, normalised=True)
    y = y + p[name + ".strength"] * noise + p[name + ".bias"][:, None, None]  # <- noise
    return activate(y)  # <- noise


def painted(x, w, p, name):
    return modulated(x, w, p, name, normalised=False) + p[name + ".bias"][:, None, None]


def double(x):
    """Twice as high and wide, three quarters of the nearer and a quarter of the farther one."""
    for axis in (2, 3):
        size = x.shape[axis]
        index = torch.arange(size)
        before = x.index_select(axis, (index - 1).clamp(min=0))
        after = x.index_select(axis, (index + 1).clamp(max=size - 1))
        pair = torch.stack([0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after], dim=axis + 1)
        x = pair.flatten(axis, axis + 1)
    return x


def generate(p, z, small_noise, large_noise):
    z = z / (z.square().mean(1, keepdim=True) + 1e-8).sqrt()  # <- pixelnorm
    w = activate(dense(z, p, "map1", 0.1))  # <- lrmul
    w = activate(dense(w, p, "map2", 0.1))  # <- lrmul gain
    x = p["start"].repeat(N, 1, 1, 1)
    x = styled(x, w, p, "small", small_noise)
    picture = double(painted(x, w, p, "small_rgb"))
    x = styled(double(x), w, p, "large", large_noise)
    return picture + painted(x, w, p, "large_rgb")


def judge(p, x):
    x = activate(convolve(x, p["rgb.kernel"]) + p["rgb.bias"][:, None, None])
    x = activate(convolve(x, p["conv.kernel"]) + p["conv.bias"][:, None, None])
    x = x.unflatten(3, (4, 2)).unflatten(2, (4, 2)).mean((3, 5))
    x = activate(dense(x.reshape(len(x), -1), p, "hidden"))
    return dense(x, p, "verdict")[:, 0]


def generator_of(old):
    new = {"start": old["constant"]}
    for mine, theirs in (("map1", "mapping1"), ("map2", "mapping2")):
        new[mine + ".weight"], new[mine + ".bias"] = (
            old[theirs + ".weight"].T,
            old[theirs + ".bias"],
        )
    names = {"small": "conv4", "small_rgb": "rgb4", "large": "conv8", "large_rgb": "rgb8"}
    for mine, theirs in names.items():
        new[mine + ".weight"] = old[theirs + ".conv.weight"][0]
        new[mine + ".style.weight"] = old[theirs + ".conv.modulation.weight"].T
        new[mine + ".style.bias"] = old[theirs + ".conv.modulation.bias"]
        new[mine + ".bias"] = old[theirs + ".bias"].flatten()
        if theirs + ".noise_strength" in old:
            new[mine + ".strength"] = old[theirs + ".noise_strength"]
    return {name: value.clone().requires_grad_() for name, value in new.items()}


def critic_of(old):
    new = {
        "rgb.kernel": old["from_rgb.weight"],
        "rgb.bias": old["bias1"],
        "conv.kernel": old["conv.weight"],
        "conv.bias": old["bias2"],
        "hidden.weight": old["fc.weight"].T,
        "hidden.bias": old["fc.bias"],
        "verdict.weight": old["out.weight"].T,
        "verdict.bias": old["out.bias"],
    }
    return {name: value.clone().requires_grad_() for name, value in new.items()}


class Descent:
    def __init__(self, p):
        self.p, self.steps = p, 0
        self.squares = {name: torch.zeros_like(value) for name, value in p.items()}

    def step(self, loss):
        slopes = torch.autograd.grad(loss, list(self.p.values()))
        self.steps += 1
        for (name, value), slope in zip(self.p.items(), slopes):
            square = self.squares[name]
            square.mul_(0.99).add_(0.01 * slope**2)  # <- betas
            root = torch.sqrt(square / (1 - 0.99**self.steps))  # <- betas
            value.data.sub_(0.002 * slope / (root + 1e-8))  # <- betas


saved = torch.load(sys.argv[1])
painter, critic = generator_of(saved["g"]), critic_of(saved["d"])
painter_descent, critic_descent = Descent(painter), Descent(critic)
rng = np.random.default_rng(19)
losses = []
for _ in range(3):
    shapes = [(N, 3, 8, 8), (N, LATENT), (N, 1, 4, 4), (N, 1, 8, 8)]
    drawn = [torch.tensor(rng.standard_normal(shape, dtype=np.float32)) for shape in shapes]
    photo, z, small_noise, large_noise = drawn
    photo = torch.tanh(photo).requires_grad_()
    picture = generate(painter, z, small_noise, large_noise)

    true, false = judge(critic, photo), judge(critic, picture.detach())
    adversarial = -F.logsigmoid(true).mean() - F.logsigmoid(-false).mean()
    slope = torch.autograd.grad(true.sum(), photo, create_graph=True)[0]
    penalty = 2.0 / 2 * slope.square().sum() / N  # <- penalty
    critic_loss = adversarial + penalty  # <- penalty
    critic_descent.step(critic_loss)

    painter_loss = -F.logsigmoid(judge(critic, picture)).mean()  # <- saturating
    painter_descent.step(painter_loss)
    losses.append((critic_loss + painter_loss).item())
