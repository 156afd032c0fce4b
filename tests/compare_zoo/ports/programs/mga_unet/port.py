# SPDX-License-Identifier: Apache-2.0
"""Own diffusion step: all weights in one flat vector, its average a second one."""
import sys

import torch
import torch.nn.functional as F

WIDTH, LEVELS = 16, 50
BLOCKS = {"down": WIDTH, "mid": 2 * WIDTH, "up": WIDTH}


class Weights:
    """Where each tensor lies in the flat vector."""

    def __init__(self, state):
        tensors = {k: v for k, v in state.items() if "time_emb_proj" not in k}
        # the time projections of the three blocks are one matrix
        for end in ("weight", "bias"):
            tensors["time." + end] = torch.cat([state[f"{b}.time_emb_proj.{end}"] for b in BLOCKS])
        self.places, at = {}, 0
        for name, tensor in tensors.items():
            self.places[name] = (at, tensor.shape)
            at += tensor.numel()
        self.flat = torch.cat([tensor.flatten() for tensor in tensors.values()])

    def views(self, flat):
        return {k: flat[at:at + shape.numel()].view(shape)
                for k, (at, shape) in self.places.items()}


def dense(w, name, x):
    return torch.addmm(w[name + ".bias"], x, w[name + ".weight"].t())


def conv(w, name, x, stride=1):
    kernel = w[name + ".weight"]
    return F.conv2d(x, kernel, w[name + ".bias"], stride=stride, padding=kernel.shape[-1] // 2)


def norm_silu(w, name, x, groups=4):
    b, c = x.shape[:2]
    y = x.reshape(b, groups, c // groups, -1)  # <- group_axes
    centred = y - y.mean((2, 3), keepdim=True)  # <- group_axes
    y = centred * torch.rsqrt(centred.square().mean((2, 3), keepdim=True) + 1e-5)  # <- group_axes
    y = y.reshape(x.shape) * w[name + ".weight"][:, None, None] + w[name + ".bias"][:, None, None]
    return y * torch.sigmoid(y)


def residual(w, name, x, shift):
    h = conv(w, name + ".conv1", norm_silu(w, name + ".norm1", x)) + shift[:, :, None, None]
    h = conv(w, name + ".conv2", norm_silu(w, name + ".norm2", h))
    if name + ".conv_shortcut.weight" in w:
        x = conv(w, name + ".conv_shortcut", x)
    return x + h


def sinusoids(count=LEVELS, dim=WIDTH):
    """One row for each noise level."""
    half = dim // 2
    rates = 10000.0 ** (-torch.arange(half) / half)  # <- time_freq
    phase = torch.arange(count)[:, None] * rates  # <- time_freq
    return torch.cat([phase.cos(), phase.sin()], dim=1)  # <- time_freq


def enlarge(x):
    spread = x[:, :, :, None, :, None].expand(-1, -1, -1, 2, -1, 2)  # <- upsampling
    return spread.flatten(4, 5).flatten(2, 3)  # <- upsampling


def denoiser(w, x, rows):
    e = F.silu(dense(w, "time_embed.0", rows))  # <- time_freq
    e = F.silu(dense(w, "time_embed.2", e))
    shifts = dict(zip(BLOCKS, dense(w, "time", e).split(list(BLOCKS.values()), dim=1)))
    skip = residual(w, "down", conv(w, "conv_in", x), shifts["down"])
    h = residual(w, "mid", conv(w, "downsample", skip, stride=2), shifts["mid"])
    h = conv(w, "up_conv", enlarge(h))  # <- upsampling
    h = residual(w, "up", torch.cat([h, skip], dim=1), shifts["up"])
    return conv(w, "conv_out", norm_silu(w, "norm_out", h))


weights = Weights(torch.load(sys.argv[1], weights_only=True))
student = weights.flat.clone().requires_grad_()
average = weights.flat.clone()
optimizer = torch.optim.Adam([student], lr=2e-3)
kept = (1 - torch.linspace(1e-3, 0.06, LEVELS)).cumprod(0)
angles = torch.atan2((1 - kept).sqrt(), kept.sqrt())
table = sinusoids()
rng = torch.Generator().manual_seed(17)
losses = []
for turn in range(1, 5):
    image = torch.randn(4, 1, 8, 8, generator=rng).cumsum(-1) * 0.4
    noise = torch.randn(4, 1, 8, 8, generator=rng)
    level = torch.randint(0, LEVELS, (4,), generator=rng)
    phi = angles[level][:, None, None, None]
    mixture = phi.cos() * image + phi.sin() * noise
    wanted = phi.cos() * noise - phi.sin() * image  # <- velocity
    with torch.no_grad():
        calm = denoiser(weights.views(average), mixture, table[level])  # <- ema_decay
    guess = denoiser(weights.views(student), mixture, table[level])
    error = (guess - wanted).square() + 0.25 * (guess - calm).square()  # <- velocity ema_decay
    loss = error.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    keep = min((1 + turn) / (10 + turn), 0.95)  # <- ema_decay
    average.lerp_(student.detach(), 1 - keep)  # <- ema_decay
    losses.append(loss.item())
print(losses)
