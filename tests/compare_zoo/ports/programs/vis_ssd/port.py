# SPDX-License-Identifier: Apache-2.0
"""The single shot detector in another framework's manner: one head for boxes and classes, anchors
from meshes, and a loss over a whole batch of padded boxes without selecting rows.
"""

import sys

import numpy as np
import torch
import torch.nn as tnn
import torch.nn.functional as fn

SIDE, KINDS, IMAGES, MOST = 32, 4, 3, 3
GRIDS = {8: (0.2, 0.45), 4: (0.45, 0.8)}
ASPECTS = (1.0, 2.0, 0.5)
SHAPES = len(ASPECTS) + 1


def anchors():
    """Corners of every anchor, (anchors, 4), in the order of the predictions."""
    every = []
    for cells, (small, large) in GRIDS.items():
        middle = (torch.arange(cells) + 0.5) / cells  # <- centre
        root = torch.tensor(ASPECTS).sqrt()
        between = torch.tensor([(small * large) ** 0.5])
        width = torch.cat([small * root, between])
        height = torch.cat([small / root, between])
        cell = torch.arange(cells)
        i, j, k = torch.meshgrid(cell, cell, torch.arange(SHAPES), indexing="ij")
        boxes = torch.stack([middle[j], middle[i], width[k], height[k]], -1)  # <- centre
        every.append(boxes.view(-1, 4))
    return torch.cat(every).clamp(0, 1)  # <- centre


class Backbone(tnn.Module):
    def __init__(self):
        super().__init__()
        self.a = tnn.Conv2d(3, 8, 3, padding="same")
        self.b = tnn.Conv2d(8, 12, 3, padding="same")
        self.c = tnn.Conv2d(12, 12, 3, padding="same", dilation=2)  # <- dilated
        self.d = tnn.Conv2d(12, 8, 1)
        self.e = tnn.Conv2d(8, 12, 3, 2, 1)
        self.gain = tnn.Parameter(torch.ones(12))

    def forward(self, x):
        for conv in (self.a, self.b):
            x = fn.max_pool2d(conv(x), 2).relu()
        fine = self.c(x).relu()  # <- dilated
        coarse = self.e(self.d(fine).relu()).relu()  # <- source
        fine = fn.normalize(fine, dim=1, eps=1e-10) * self.gain[:, None, None]  # <- normed
        return fine, coarse  # <- source


class Detector(tnn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.heads = tnn.ModuleList(
            [tnn.Conv2d(12, SHAPES * (4 + KINDS), 3, padding="same") for _ in GRIDS]
        )

    def forward(self, x):
        maps = [head(m) for head, m in zip(self.heads, self.backbone(x))]  # <- source
        rows = torch.cat([m.flatten(2) for m in maps], 2)
        rows = rows.view(len(x), SHAPES, 4 + KINDS, -1).permute(0, 3, 1, 2)
        return rows.flatten(1, 2).split([4, KINDS], -1)


def from_ssd(old):
    pieces = {"a": "vgg.0", "b": "vgg.3", "c": "vgg.6", "d": "extras.0", "e": "extras.2"}
    new = {"backbone.gain": old["L2Norm.weight"]}
    for part in ("weight", "bias"):
        for ours, theirs in pieces.items():
            new[f"backbone.{ours}.{part}"] = old[f"{theirs}.{part}"]
        for i in range(len(GRIDS)):
            loc = old[f"loc.{i}.{part}"].unflatten(0, (SHAPES, 4))
            conf = old[f"conf.{i}.{part}"].unflatten(0, (SHAPES, KINDS))
            new[f"heads.{i}.{part}"] = torch.cat([loc, conf], 1).flatten(0, 1)
    return new


def overlap(boxes, prior):
    """(images, boxes, anchors) from corners of boxes and centres and sizes of anchors."""
    low, high = prior[:, :2] - prior[:, 2:] / 2, prior[:, :2] + prior[:, 2:] / 2
    sides = torch.minimum(boxes[:, :, None, 2:], high) - torch.maximum(boxes[:, :, None, :2], low)
    both = sides.clamp(min=0).prod(-1)
    one = (boxes[..., 2:] - boxes[..., :2]).prod(-1)[..., None]
    return both / (one + (high - low).prod(-1) - both)


def assign(boxes, labels, prior):
    """For each anchor: the class it should find, 0 for none, and the box."""
    real = labels > 0
    iou = overlap(boxes, prior).masked_fill(~real[..., None], -1)
    best, owner = iou.max(1)
    favourite = iou.argmax(2)
    for i in range(len(boxes)):
        for j in range(int(real[i].sum())):
            owner[i, favourite[i, j]] = j  # <- forced
            best[i, favourite[i, j]] = 2.0  # <- forced
    wanted = labels.gather(1, owner) * (best >= 0.5)  # <- forced
    return wanted, boxes.gather(1, owner[..., None].expand(-1, -1, 4))


def offsets(box, prior):
    centre, size = (box[..., :2] + box[..., 2:]) / 2, box[..., 2:] - box[..., :2]
    shift = (centre - prior[:, :2]) / prior[:, 2:] / 0.1
    return torch.cat([shift, torch.log(size / prior[:, 2:]) / 0.2], -1)  # <- variance


def detection_loss(places, scores, boxes, labels, prior):
    wanted, box = assign(boxes, labels, prior)
    hit = wanted > 0
    count = hit.sum()  # <- divided
    away = (places - offsets(box, prior)).abs()  # <- variance
    per_side = torch.where(away < 1, away.square() / 2, away - 0.5)
    place_loss = (per_side.sum(-1) * hit).sum() / count  # <- divided
    surprise = -scores.log_softmax(-1).gather(-1, wanted[..., None]).squeeze(-1)
    negatives = surprise.detach().masked_fill(hit, 0.0)  # <- mined
    rank = negatives.argsort(1, descending=True).argsort(1)  # <- mined
    mined = rank < 3 * hit.sum(1, keepdim=True)  # <- mined
    class_loss = surprise.where(hit | mined, 0.0).sum() / count  # <- divided mined
    return place_loss + class_loss  # <- divided


def scene(rng):
    images = rng.uniform(0, 255, (IMAGES, SIDE, SIDE, 3)).astype(np.float32)
    boxes, labels = torch.zeros(IMAGES, MOST, 4), torch.zeros(IMAGES, MOST, dtype=torch.long)
    boxes[..., 2:] = 1.0
    for i in range(IMAGES):
        for j in range(int(rng.integers(1, 4))):
            w, h = rng.integers(6, 22, 2)
            x, y = rng.integers(0, SIDE - w), rng.integers(0, SIDE - h)
            kind = int(rng.integers(0, KINDS - 1))
            images[i, y : y + h, x : x + w, kind] = 240
            boxes[i, j] = torch.tensor([x, y, x + w, y + h]) / SIDE
            labels[i, j] = kind + 1
    return torch.tensor(images), boxes, labels


model = Detector().to(memory_format=torch.channels_last)
model.load_state_dict(from_ssd(torch.load(sys.argv[1])))
sgd = torch.optim.SGD(model.parameters(), lr=4e-3, momentum=0.9, weight_decay=5e-4)
prior = anchors()
rng = np.random.default_rng(42)
losses = []
for _ in range(4):
    images, boxes, labels = scene(rng)
    pixels = (images - torch.tensor([104.0, 117.0, 123.0])).div(64).permute(0, 3, 1, 2)
    loss = detection_loss(*model(pixels), boxes, labels, prior)
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    losses.append(loss.item())
