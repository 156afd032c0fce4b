# SPDX-License-Identifier: Apache-2.0
"""The region proposals in own code: one convolution for scores and boxes, anchors by their centers,
matching level by level with weights instead of indices.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

LEVELS = [(4, 12.0), (8, 24.0), (16, 48.0)]
RATIOS = (0.5, 1.0, 2.0)  # height over width


class Down(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, stride=2, padding=1, bias=False)
        self.scale = nn.Parameter(torch.ones(c_out, 1, 1))
        self.shift = nn.Parameter(torch.zeros(c_out, 1, 1))

    def forward(self, x):
        return F.relu(torch.addcmul(self.shift, self.conv(x), self.scale))  # <- frozen


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.downs = nn.Sequential(Down(3, 16), Down(16, 24), Down(24, 32))
        self.side3, self.side4 = nn.Conv2d(24, 16, 1), nn.Conv2d(32, 16, 1)
        self.out3, self.out4 = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.tower, self.predict = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 3 * 5, 1)

    def forward(self, x):
        c3 = self.downs[:2](x)
        c4 = self.downs[2](c3)
        p4 = self.side4(c4)
        p3 = self.side3(c3) + F.interpolate(p4, scale_factor=2, mode="nearest")  # <- upsample
        p3, p4 = self.out3(p3), self.out4(p4)
        out = []
        for p in (p3, p4, p4[:, :, ::2, ::2]):
            y = self.predict(F.relu(self.tower(p)))
            # (batch, rows, columns, anchors, score and box)
            out.append(y.unflatten(1, (3, 5)).permute(0, 3, 4, 1, 2))
        return out


def load(net, old):
    def fill(layer, name):
        layer.load_state_dict({k: old[f"{name}.{k}"] for k in ("weight", "bias")})

    for i, down in enumerate(net.downs):
        down.conv.weight.copy_(old[f"body.{i}.0.weight"])
        norm = f"body.{i}.1"
        scale = old[f"{norm}.weight"] * (old[f"{norm}.running_var"] + 1e-5).rsqrt()
        shift = old[f"{norm}.bias"] - old[f"{norm}.running_mean"] * scale
        down.scale.copy_(scale[:, None, None])
        down.shift.copy_(shift[:, None, None])
    for i, (side, out) in enumerate(((net.side3, net.out3), (net.side4, net.out4))):
        fill(side, f"fpn.inner_blocks.{i}.0")
        fill(out, f"fpn.layer_blocks.{i}.0")
    fill(net.tower, "head.conv.0.0")
    for k in ("weight", "bias"):
        scores = old[f"head.cls_logits.{k}"].unflatten(0, (3, 1))
        boxes = old[f"head.bbox_pred.{k}"].unflatten(0, (3, 4))
        getattr(net.predict, k).copy_(torch.cat((scores, boxes), 1).flatten(0, 1))


def anchor_grid(stride, size, rows):
    """Corners of the anchors of a level: (rows, columns, anchors, 4)."""
    h = size * torch.tensor(RATIOS).sqrt()  # <- ratios
    w = size / torch.tensor(RATIOS).sqrt()  # <- ratios
    half = torch.stack((w, h), 1).div(2).round()
    at = torch.arange(rows) * float(stride)
    center = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1)[:, :, None]
    return torch.cat((center - half, center + half), -1)


def middle(boxes):
    size = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + 0.5 * size, size


def overlap(a, b):
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    common = (high - low).clamp(min=0).prod(-1)
    return common / (middle(a)[1].prod(-1) + middle(b)[1].prod(-1) - common)


def image_loss(predicted, anchors, boxes):
    iou = overlap(anchors[:, None], boxes[None])  # <- ratios
    best, which = iou.max(1)
    positive = best >= 0.6  # <- low_quality
    positive |= (iou == iou.amax(0)).any(1)  # <- low_quality
    counted = positive | (best < 0.3)  # <- low_quality
    (xy, wh), (own_xy, own_wh) = middle(boxes[which]), middle(anchors)
    wanted = torch.cat(((xy - own_xy) / own_wh, torch.log(wh / own_wh)), -1)
    gap = (predicted[:, 1:] - wanted).abs()
    near = torch.where(gap < 1 / 9, 4.5 * gap**2, gap - 1 / 18)  # <- beta
    margin = F.softplus(predicted[:, 0]) - predicted[:, 0] * positive
    return (margin * counted).sum() + (near.sum(-1) * positive).sum(), counted.sum()  # <- beta


net = Detector()
with torch.no_grad():
    load(net, torch.load(sys.argv[1]))
for down in net.downs:
    down.scale.requires_grad_(False)  # <- frozen
    down.shift.requires_grad_(False)  # <- frozen
trained = [p for p in net.parameters() if p.requires_grad]  # <- frozen
optimizer = torch.optim.SGD(trained, lr=0.05, momentum=0.9, weight_decay=1e-3)  # <- frozen
rng = torch.Generator().manual_seed(371)
losses = []
for step in range(4):
    images = torch.rand(2, 3, 64, 64, generator=rng)
    levels = net(images)
    anchors = [anchor_grid(*level, y.shape[1]).reshape(-1, 4) for level, y in zip(LEVELS, levels)]
    total, number = 0.0, 0
    for b, count in enumerate((2, 3)):
        corner = torch.rand(count, 2, generator=rng) * 34
        boxes = torch.cat((corner, corner + 8 + torch.rand(count, 2, generator=rng) * 22), 1)
        rows = torch.cat([y[b].reshape(-1, 5) for y in levels])
        part, counted = image_loss(rows, torch.cat(anchors), boxes)
        total, number = total + part, number + counted
    loss = total / number
    for group in optimizer.param_groups:
        group["lr"] = 0.05 * (0.1 + 0.3 * step)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- frozen
    losses.append(loss.item())
