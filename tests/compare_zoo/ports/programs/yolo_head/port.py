# SPDX-License-Identifier: Apache-2.0
"""The same detector with channels last and corners instead of centres: levels in a dictionary, a
loop over the points of the grid for targets, losses of plain logarithms, SGD written out.
"""

import sys

import numpy as np
import torch
from torch import nn

KINDS, SIDE = 3, 32


class Layer(nn.Module):
    """A convolution over (batch, height, width, channels) with its norm and swish."""

    def __init__(self, size, inside, outside, stride=1):
        super().__init__()
        self.size, self.stride = size, stride
        self.kernel = nn.Parameter(torch.zeros(size, size, inside, outside))
        self.scale, self.shift = (nn.Parameter(torch.zeros(outside)) for _ in range(2))

    def forward(self, x):
        around = self.size // 2
        x = nn.functional.pad(x, (0, 0, around, around, around, around))
        windows = x.unfold(1, self.size, self.stride).unfold(2, self.size, self.stride)
        x = torch.einsum("bhwcij,ijco->bhwo", windows, self.kernel)
        centred = x - x.mean((0, 1, 2))
        deviation = torch.sqrt(centred.pow(2).mean((0, 1, 2)) + 1e-3)  # <- epsilon
        x = centred / deviation * self.scale + self.shift  # <- epsilon
        return x * torch.sigmoid(x)


class Head(nn.Module):
    def __init__(self, inside, stride):
        super().__init__()
        self.stride = stride
        self.stem, self.what, self.where = Layer(1, inside, 8), Layer(3, 8, 8), Layer(3, 8, 8)
        self.classes, self.place = nn.Linear(8, KINDS), nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        kinds, place = self.classes(self.what(x)), self.place(self.where(x))
        steps = torch.arange(x.shape[1], dtype=torch.float32)
        rows, columns = steps[:, None], steps[None, :]  # <- grid
        cx = (place[..., 0] + columns) * self.stride  # <- grid
        cy = (place[..., 1] + rows) * self.stride  # <- grid
        half = place[..., 2:4].exp() * self.stride / 2
        centre = torch.stack([cx, cy], dim=-1)
        corners = torch.cat([centre - half, centre + half], dim=-1)
        return corners.flatten(1, 2), place[..., 4].flatten(1), kinds.flatten(1, 2)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Layer(3, 3, 8, 2), Layer(3, 8, 12, 2)
        self.third, self.lateral = Layer(3, 12, 16, 2), Layer(1, 16, 12)
        self.joint = Layer(3, 24, 12)
        self.fine, self.coarse = Head(12, 4), Head(16, 8)

    def forward(self, x):
        middle = self.second(self.first(x))
        deep = self.third(middle)
        up = self.lateral(deep).repeat_interleave(2, 1).repeat_interleave(2, 2)  # <- joined
        shallow = self.joint(torch.cat([up, middle], dim=-1))  # <- joined
        levels = self.fine(shallow), self.coarse(deep)
        return [torch.cat(parts, dim=1) for parts in zip(*levels)]


def assign(boxes):
    """For each point of both levels the number of its box, None for background."""
    chosen = []
    for stride in (4, 8):
        for n in range((SIDE // stride) ** 2):
            y, x = (stride * (i + 0.5) for i in divmod(n, SIDE // stride))
            around = []
            for number, (left, top, right, bottom) in enumerate(boxes.tolist()):
                width, height = right - left, bottom - top
                fits = (max(width, height) < 12) == (stride == 4)
                if fits and left < x < right and top < y < bottom:
                    around.append((width * height, number))
            chosen.append(min(around)[1] if around else None)  # <- smallest
    return chosen


def area(box):
    return (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])


def overlap(a, b):
    """IoU and GIoU of boxes as corners."""
    low, high = torch.maximum(a, b), torch.minimum(a, b)
    common = (high[:, 2:] - low[:, :2]).relu().prod(-1)
    union = area(a) + area(b) - common
    hull = area(torch.cat([high[:, :2], low[:, 2:]], dim=-1))
    iou = common / union
    return iou, iou - (1 - union / hull)  # <- enclosing


def cross_entropy(logit, target):
    return torch.clamp(logit, min=0) - logit * target + torch.log1p(torch.exp(-logit.abs()))


def criterion(predictions, boxes, kinds):
    corners, objectness, classes = predictions
    found = [
        (b, p, n)
        for b in range(len(boxes))
        for p, n in enumerate(assign(boxes[b]))
        if n is not None
    ]
    image, point, number = (torch.tensor(column) for column in zip(*found))
    iou, giou = overlap(corners[image, point], boxes[image, number])
    box_term = 5 * (1 - giou).sum()
    is_object = torch.zeros_like(objectness)
    is_object[image, point] = 1
    object_term = cross_entropy(objectness, is_object).sum()  # <- foreground
    wanted = torch.eye(KINDS)[kinds[image, number]] * iou.detach()[:, None]  # <- quality
    class_term = cross_entropy(classes[image, point], wanted).sum()  # <- quality
    return (box_term + object_term + class_term) / len(found)  # <- foreground


LAYERS = {
    "first": "backbone.stem",
    "second": "backbone.dark2",
    "third": "backbone.dark3",
    "lateral": "backbone.lateral",
    "joint": "backbone.fuse",
}
for level, head in enumerate(("fine", "coarse")):
    LAYERS |= {
        f"{head}.stem": f"head.stems.{level}",
        f"{head}.what": f"head.cls_convs.{level}",
        f"{head}.where": f"head.reg_convs.{level}",
    }


def weights_of(old):
    new = {}
    for mine, theirs in LAYERS.items():
        new[f"{mine}.kernel"] = old[f"{theirs}.conv.weight"].permute(2, 3, 1, 0)
        new[f"{mine}.scale"] = old[f"{theirs}.bn.weight"]
        new[f"{mine}.shift"] = old[f"{theirs}.bn.bias"]
    for level, head in enumerate(("fine", "coarse")):
        for kind in ("weight", "bias"):
            box, thing = (old[f"head.{part}_preds.{level}.{kind}"] for part in ("reg", "obj"))
            new[f"{head}.place.{kind}"] = (
                torch.cat([box, thing]).flatten(1) if kind == "weight" else torch.cat([box, thing])
            )
            classes = old[f"head.cls_preds.{level}.{kind}"]
            new[f"{head}.classes.{kind}"] = classes[:, :, 0, 0] if kind == "weight" else classes
    return new


def draw(rng):
    size = rng.uniform(5, 20, (4, 2))
    low = rng.random((4, 2)) * (SIDE - size)
    kinds = rng.integers(0, KINDS, 4)
    return np.concatenate([low, low + size], axis=1).astype(np.float32), kinds


def sgd(net, speed):
    with torch.no_grad():
        for name, p in net.named_parameters():
            g = p.grad
            if p.dim() > 1:
                g = g + 0.01 * p
            speed[name] = 0.9 * speed.get(name, 0.0) + g
            p.sub_(0.02 * (g + 0.9 * speed[name]))  # <- nesterov
            p.grad = None


net = Detector()
net.load_state_dict(weights_of(torch.load(sys.argv[1])))
speed = {}
rng = np.random.default_rng(73)
losses = []
for _ in range(3):
    images = rng.random((3, 3, SIDE, SIDE), dtype=np.float32)
    boxes, kinds = (torch.from_numpy(np.stack(x)) for x in zip(*(draw(rng) for _ in range(3))))
    predictions = net(torch.from_numpy(images).permute(0, 2, 3, 1))
    loss = criterion(predictions, boxes, kinds)
    loss.backward()
    sgd(net, speed)
    losses.append(loss.item())
