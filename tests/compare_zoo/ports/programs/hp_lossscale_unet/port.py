# SPDX-License-Identifier: Apache-2.0
"""The U-Net with a dynamic loss scale: gradients scaled, checked, unscaled, clipped (never in earnest), applied."""
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)


class LossScale:
    """A power of two that doubles every `every` sound steps and halves at an overflow."""

    def __init__(self, start=2.0 ** 12, every=2):
        self.value, self.every, self.sound, self.skipped = start, every, 0, 0

    def unscale(self, params):
        torch._foreach_mul_([p.grad for p in params], 1.0 / self.value)
        return all(bool(p.grad.isfinite().all()) for p in params)

    def update(self, fine):
        self.sound = self.sound + 1 if fine else 0
        self.skipped += not fine
        if not fine:
            self.value /= 2
        elif self.sound % self.every == 0:
            self.value *= 2


class Stage(nn.Sequential):
    """Convolution with normalisation as a group norm of one channel a group; the dead biases are left out."""

    def __init__(self, cin, cout):
        super().__init__()
        for i, c in enumerate((cin, cout)):
            self.add_module(f"c{i}", nn.Conv2d(c, cout, 3, padding="same", bias=False))
            self.add_module(f"n{i}", nn.GroupNorm(cout, cout))
            self.add_module(f"a{i}", nn.LeakyReLU(0.1, inplace=True))


class Grow(nn.Module):
    """Twice the size: a pointwise convolution to four times the channels, then a pixel shuffle."""

    def __init__(self, cin, cout):
        super().__init__()
        self.point = nn.Conv2d(cin, 4 * cout, 1, bias=False)
        self.shift = nn.Parameter(torch.zeros(cout, 1, 1))

    def forward(self, x):
        return F.pixel_shuffle(self.point(x), 2) + self.shift


class Recursive(nn.Module):
    """A level of the U holds the level below it."""

    def __init__(self, cin, widths):
        super().__init__()
        width, *below = widths
        self.down = Stage(cin, width)
        self.inner = Recursive(width, below) if below else None
        if below:
            self.grow, self.join = Grow(below[0], width), Stage(2 * width, width)

    def forward(self, x):
        skip = self.down(x)
        if self.inner is None:
            return skip
        low = self.inner(F.adaptive_max_pool2d(skip, skip.shape[-1] // 2))
        return self.join(torch.cat((self.grow(low), skip), 1))


def convert(sd):
    new = {"1.weight": sd["out.weight"], "1.bias": sd["out.bias"]}
    for ours, theirs in (("down", "enc1"), ("inner.down", "enc2"), ("inner.inner.down", "middle"),
                         ("join", "dec1"), ("inner.join", "dec2")):
        for i in (0, 1):
            new[f"0.{ours}.c{i}.weight"] = sd[f"{theirs}.conv{i + 1}.weight"]
            for part in ("weight", "bias"):
                new[f"0.{ours}.n{i}.{part}"] = sd[f"{theirs}.norm{i + 1}.{part}"]
    for ours, theirs in (("grow", "up1"), ("inner.grow", "up2")):
        w = sd[f"{theirs}.weight"]                                   # in, out, 2, 2
        new[f"0.{ours}.point.weight"] = w.permute(1, 2, 3, 0).reshape(-1, w.shape[0], 1, 1)
        new[f"0.{ours}.shift"] = sd[f"{theirs}.bias"][:, None, None]
    return new


def objective(logits, y):
    logp = logits.log_softmax(1).transpose(0, 1).flatten(1)          # classes, pixels
    hot = (torch.arange(3)[:, None] == y.flatten()).float()
    ce = -(logp * hot).sum() / y.numel()
    p = logp.exp()
    dice = (2 * (p * hot).sum(1) + 1) / (p.sum(1) + hot.sum(1) + 1)
    return ce + (1 - dice.mean())


class Discs(torch.utils.data.IterableDataset):
    def __iter__(self):
        gen = torch.Generator().manual_seed(42)
        ax = torch.arange(16.0)
        for _ in range(6):
            noise = torch.randn(4, 1, 16, 16, generator=gen)
            cy, cx = (torch.rand(4, 2, generator=gen) * 8 + 4).T[..., None]
            d2 = (ax - cy)[:, :, None] ** 2 + (ax - cx)[:, None, :] ** 2
            mask = (d2.sqrt() < 5).long() + (d2.sqrt() < 2.5).long()
            yield noise + mask.unsqueeze(1), mask


net = nn.Sequential(Recursive(1, [6, 12, 16]), nn.Conv2d(6, 3, 1))
net.load_state_dict(convert(torch.load(sys.argv[1])))
net = net.to(memory_format=torch.channels_last)
weights = list(net.parameters())
opt = torch.optim.AdamW(weights, lr=0.0, weight_decay=1e-2, eps=1e-5)
scale = LossScale()
losses, norms, overlaps = [], [], []
for epoch, (x, y) in enumerate(torch.utils.data.DataLoader(Discs(), batch_size=None)):
    opt.param_groups[0]["lr"] = 2e-3 * (1 + math.cos(math.pi * epoch / 6))
    logits = net(x.contiguous(memory_format=torch.channels_last))
    loss = objective(logits, y)
    (loss * scale.value).backward()
    fine = scale.unscale(weights)
    norms.append(float(nn.utils.clip_grad_norm_(weights, max_norm=100.0)))
    if fine:
        opt.step()
    scale.update(fine)
    opt.zero_grad(set_to_none=True)
    losses.append(loss.item())
    overlaps.append((logits.argmax(1) == y).float().mean().item())
print(losses)
