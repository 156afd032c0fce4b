# SPDX-License-Identifier: Apache-2.0
"""Fake quantisation by parametrizations and the detach trick, ranges in a tracker, clamp first and round after."""
import sys

import torch
from torch import nn
from torch.nn.utils import parametrize

torch.set_num_threads(1)

B, STEPS, W_TOP, A_TOP = 8, 6, 7, 63


def straight_through(x, low, high):
    # rounding happens before the decision what is outside: half a step beyond the end is still inside
    bounded = x.clamp(low - 0.5, high + 0.5)
    return bounded + (bounded.detach().round().clamp(low, high) - bounded.detach())


class SymmetricGrid(nn.Module):
    """Weight on 15 levels, one step size for every row."""

    def forward(self, w):
        with torch.no_grad():
            step = w.flatten(1).abs().max(1).values * 0.8 / W_TOP
            step = step.reshape([-1] + [1] * (w.ndim - 1))
        return straight_through(w / step, -W_TOP, W_TOP) * step


class Ranges:
    """Running peaks by name, outside of the model."""

    def __init__(self):
        self.peaks, self.frozen = {}, False

    def __call__(self, name, x):
        if not self.frozen:
            new = 0.9 * x.detach().amax()
            self.peaks[name] = new if name not in self.peaks else torch.lerp(self.peaks[name], new, 0.25)
        step = self.peaks[name] / A_TOP
        return straight_through(x / step, 0, A_TOP) * step


class Mobile(nn.Module):
    def __init__(self, ranges):
        super().__init__()
        self.ranges = ranges
        self.stem = nn.Linear(9, 6)
        self.depth = nn.Linear(9, 6)                      # one row of taps for each channel
        self.mix = nn.Linear(6, 10)
        self.hidden = nn.Linear(10, 16)
        self.last = nn.Linear(16, 3)
        for layer in (self.depth, self.mix, self.hidden):
            parametrize.register_parametrization(layer, "weight", SymmetricGrid())

    @staticmethod
    def taps(x, stride):                                  # (B, C, H, W) -> (B, C, h, w, 9)
        x = nn.functional.pad(x, (1, 1, 1, 1))
        return x.unfold(2, 3, stride).unfold(3, 3, stride).flatten(-2)

    def forward(self, x):
        x = self.stem(self.taps(x, 2)[:, 0]).relu()       # (B, h, w, 6)
        x = self.ranges("stem", x).movedim(-1, 1)
        x = torch.einsum("bchwt,ct->bhwc", self.taps(x, 1), self.depth.weight) + self.depth.bias
        x = self.ranges("mix", self.mix(x).clamp(0, 6))
        x = self.ranges("hidden", self.hidden(x.mean((1, 2))).relu())
        return self.last(x)


def adopt(net, sd):
    names = {"stem": "stem", "depth": "depthwise", "mix": "pointwise", "hidden": "hidden", "last": "fc"}
    with torch.no_grad():
        for new, old in names.items():
            layer = getattr(net, new)
            weight = layer.parametrizations.weight.original if parametrize.is_parametrized(layer) else layer.weight
            weight.copy_(sd[old + ".weight"].reshape(weight.shape))
            layer.bias.copy_(sd[old + ".bias"])


ranges = Ranges()
net = Mobile(ranges)
adopt(net, torch.load(sys.argv[1]))
rng = torch.Generator().manual_seed(4)
pixels = torch.randn(48, 1, 8, 8, generator=rng)
upper, lower = pixels[:, 0].split(4, 1)
answer = (upper.mean((1, 2)) > 0).long() + (lower.mean((1, 2)) > 0).long()
order = [torch.randint(0, 48, (B,), generator=rng) for _ in range(STEPS)]

weights = list(net.parameters())
speed = None
losses, checked = [], []
for rows in order:
    with parametrize.cached():
        logits = net(pixels[rows])
        loss = nn.functional.nll_loss(logits.log_softmax(1), answer[rows])
        grads = torch.autograd.grad(loss, weights)
        ranges.frozen = True                              # validation on the step's weights, ranges at rest
        with torch.no_grad():
            checked.append((net(pixels).argmax(1) == answer).float().mean().item())
        ranges.frozen = False
    speed = list(grads) if speed is None else torch._foreach_add(torch._foreach_mul(speed, 0.9), grads)
    with torch.no_grad():
        torch._foreach_sub_(weights, torch._foreach_mul(speed, 0.05))
    losses.append(loss.item())

print(losses)
