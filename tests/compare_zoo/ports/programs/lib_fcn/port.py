# SPDX-License-Identifier: Apache-2.0
"""The segmentation in own code: flat weights, upsampling as two matrix products, pixels picked
before the loss, momentum by hand.
"""

import sys

import torch
import torch.nn.functional as F

CLASSES, STEPS = 4, 5
BGR_MEAN, BGR_STD = (103.53, 116.28, 123.675), (57.375, 57.12, 58.395)


class Weights:
    """Tensors of a checkpoint by short names; running averages are left behind."""

    def __init__(self, path):
        self.by_name = {}
        for key, value in torch.load(path).items():
            if "running" not in key and "num_batches" not in key:
                name = key.removeprefix("backbone.").replace("aux_classifier", "aux")
                self.by_name[name] = value.clone().requires_grad_()
        # the cameras of this team deliver blue first
        stem = self.by_name["conv1.weight"]
        self.by_name["conv1.weight"] = stem.detach().flip(1).requires_grad_()  # <- colours

    def conv(self, x, name, stride=1):
        w = self.by_name[f"{name}.weight"]
        return F.conv2d(x, w, self.by_name.get(f"{name}.bias"), stride, w.shape[-1] // 2)

    def norm(self, x, name):
        wide = x.transpose(0, 1).flatten(1)
        var, mean = torch.var_mean(wide, dim=1, correction=0, keepdim=True)
        y = (wide - mean) / (var + 1e-5).sqrt()
        y = y * self.by_name[f"{name}.weight"][:, None] + self.by_name[f"{name}.bias"][:, None]
        return y.view(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)


def residual(w, x, name, stride):
    y = w.norm(w.conv(x, f"{name}.conv1", stride), f"{name}.bn1").relu()
    y = w.norm(w.conv(y, f"{name}.conv2"), f"{name}.bn2")
    return (y + w.norm(w.conv(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")).relu()


def head(w, x, name):
    x = w.norm(w.conv(x, f"{name}.0"), f"{name}.1").relu()
    return w.conv(x, f"{name}.4")


def stretch(small, large):
    """Rows that turn `small` values into `large` ones, linearly, pixels being areas."""
    at = (torch.arange(large) + 0.5) * small / large - 0.5  # <- corners
    at = at.clamp(0, small - 1)
    low = at.floor().long()
    high = (low + 1).clamp(max=small - 1)
    share = (at - low)[:, None]
    return F.one_hot(low, small) * (1 - share) + F.one_hot(high, small) * share


def enlarge(x, size):
    rows = stretch(x.shape[2], size)
    return rows @ x @ rows.t()  # <- corners


def network(w, x):
    x = F.relu(w.norm(w.conv(x, "conv1", 2), "bn1"))  # <- colours
    x = F.max_pool2d(x, 3, 2, 1)
    third = residual(w, x, "layer3", 2)
    fourth = residual(w, third, "layer4", 2)
    return enlarge(head(w, fourth, "classifier"), 64), enlarge(head(w, third, "aux"), 64)


def pixel_loss(scores, target):
    counted = target != 255  # <- border
    rows = scores.permute(0, 2, 3, 1)[counted]  # <- border
    return F.nll_loss(rows.log_softmax(-1), target[counted])  # <- border


def photos(rng):
    image = torch.rand(4, 3, 64, 64, generator=rng)
    coarse = torch.randint(0, CLASSES, (4, 8, 8), generator=rng)
    target = F.interpolate(coarse[:, None].float(), scale_factor=8)[:, 0]
    edge = torch.rand(4, 64, 64, generator=rng) < 0.1
    bgr = (image + 0.2 * target[:, None]).flip(1) * 255
    mean, std = torch.tensor(BGR_MEAN).view(3, 1, 1), torch.tensor(BGR_STD).view(3, 1, 1)
    return (bgr - mean) / std, torch.where(edge, 255, target.long())  # <- border


weights = Weights(sys.argv[1])
speed = dict.fromkeys(weights.by_name, 0.0)
rng = torch.Generator().manual_seed(411)
losses = []
for step in range(STEPS):
    pixels, target = photos(rng)
    main, side = network(weights, pixels)
    loss = pixel_loss(main, target) + 0.5 * pixel_loss(side, target)  # <- auxiliary
    loss.backward()
    decay = (1 - step / STEPS) ** 0.9
    with torch.no_grad():
        for name, value in weights.by_name.items():
            speed[name] = 0.9 * speed[name] + value.grad + 1e-3 * value
            rate = 0.1 if name.startswith("aux") else 0.01  # <- rates
            value.sub_(rate * decay * speed[name])  # <- rates
            value.grad = None
    losses.append(loss.item())
