# SPDX-License-Identifier: Apache-2.0
"""Detector for the edge runtime: plain functions, whitening folded to one multiply-add, and one
suppression pass over all classes (boxes of other classes are moved apart)."""
import sys
import torch
from torch.nn.functional import conv2d, pad

GRID, CELL, SIDE = 5, 8, 40
SHAPES = torch.tensor([[10.0, 10.0], [18.0, 9.0], [9.0, 18.0]])
MU = torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)
SD = torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)
params = torch.load(sys.argv[1], weights_only=True)


def whiten(pixels):
    return pixels * (1.0 / (255.0 * SD)) - MU / SD  # <- whiten


def backbone(x):
    for name in ("stem", "stage1", "stage2"):
        x = pad(x, [0, 1, 0, 1])  # <- padside
        x = conv2d(x, params[name + ".weight"], params[name + ".bias"], stride=2)  # <- padside
        x = torch.clamp(x, 0.0, 6.0)
    return x


def heads(x):
    """One convolution for both heads; (batch, cells * shapes, 5 + 4)."""
    k = torch.cat([params["cls.weight"].unflatten(0, (3, 5)),
                   params["loc.weight"].unflatten(0, (3, 4))], 1).flatten(0, 1)
    b = torch.cat([params["cls.bias"].view(3, 5), params["loc.bias"].view(3, 4)], 1).flatten()
    y = conv2d(x, k, b, padding=1)
    return y.flatten(2).transpose(1, 2).reshape(x.shape[0], GRID * GRID * 3, 9)


def boxes_of(delta):
    yy, xx = torch.meshgrid(torch.arange(GRID), torch.arange(GRID), indexing="ij")
    mid = torch.stack([xx, yy], -1).float().reshape(-1, 1, 2).expand(-1, 3, 2)
    mid = ((mid + 0.5) * CELL).reshape(-1, 2)  # <- centre
    wh = SHAPES.repeat(GRID * GRID, 1)
    xy = delta[..., 0:2].mul(0.1).mul(wh).add(mid)  # <- variance centre
    wh = delta[..., 2:4].mul(0.2).exp().mul(wh)  # <- variance
    half = wh * 0.5
    return torch.cat((xy - half, xy + half), dim=-1).clip(0.0, float(SIDE))


def pairwise_iou(b):
    x1, y1, x2, y2 = b.unbind(1)
    w = torch.min(x2[:, None], x2) - torch.max(x1[:, None], x1)
    h = torch.min(y2[:, None], y2) - torch.max(y1[:, None], y1)
    inter = w.clip(min=0) * h.clip(min=0)
    area = (x2 - x1) * (y2 - y1)
    return inter / (area[:, None] + area - inter)


def suppress(boxes, scores, kinds, limit=0.3):
    order = scores.argsort(descending=True)
    moved = boxes + kinds[:, None] * (2.0 * SIDE)  # <- classwise
    overlap = pairwise_iou(moved[order]).gt(limit).triu(1)  # <- classwise
    alive = torch.ones(len(order), dtype=torch.bool)
    for i in range(len(order)):
        if alive[i]:
            alive &= ~overlap[i]
    return order[alive]


def detections(raw):
    prob = torch.softmax(raw[:, :5], dim=1)[:, 1:]
    where, kind = torch.nonzero(prob > 0.15, as_tuple=True)
    box, score = boxes_of(raw[:, 5:])[where], prob[where, kind]
    keep = suppress(box, score, kind)[:20]
    return torch.cat([score[keep, None], box[keep]], dim=1)


source = torch.Generator().manual_seed(77)
weights = torch.tensor([1.0, 2.0, 1.0, 1.0]) / 50.0
losses = []
with torch.inference_mode():
    for batch in range(4):
        small = torch.randint(0, 256, (2, 3, 10, 10), generator=source)
        pixels = torch.kron(small.float(), torch.ones(4, 4))
        raw = heads(backbone(whiten(pixels)))
        sums = [(d[:, 0] * (1.0 + d[:, 1:] @ weights)).sum() for d in map(detections, raw)]
        losses.append(torch.stack(sums).mean().item())
print(losses)
