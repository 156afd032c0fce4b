# SPDX-License-Identifier: Apache-2.0
"""Single-shot detector on 40x40 images (weights once came from TensorFlow, so the stride-2
convolutions pad right and bottom); per-class non-maximum suppression."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, ANCHORS, SIZE, STRIDE = 4, ((10.0, 10.0), (18.0, 9.0), (9.0, 18.0)), 40, 8
VARIANCE = (0.1, 0.2)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class SameConv(nn.Conv2d):
    def forward(self, x):
        x = F.pad(x, (0, 1, 0, 1))  # <- padside
        return super().forward(x)  # <- padside


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = SameConv(3, 12, 3, stride=2)
        self.stage1 = SameConv(12, 24, 3, stride=2)
        self.stage2 = SameConv(24, 32, 3, stride=2)
        self.cls = nn.Conv2d(32, len(ANCHORS) * (CLASSES + 1), 3, padding=1)
        self.loc = nn.Conv2d(32, len(ANCHORS) * 4, 3, padding=1)

    def forward(self, x):
        for layer in (self.stem, self.stage1, self.stage2):
            x = F.relu6(layer(x))
        b = x.shape[0]
        logits = self.cls(x).permute(0, 2, 3, 1).reshape(b, -1, CLASSES + 1)
        deltas = self.loc(x).permute(0, 2, 3, 1).reshape(b, -1, 4)
        return logits, deltas


def make_anchors():
    boxes = []
    for i in range(SIZE // STRIDE):
        for j in range(SIZE // STRIDE):
            for w, h in ANCHORS:
                cx, cy = (j + 0.5) * STRIDE, (i + 0.5) * STRIDE  # <- centre
                boxes.append((cx, cy, w, h))
    return torch.tensor(boxes)


def decode(deltas, anchors):
    centre = anchors[:, :2] + deltas[:, :2] * VARIANCE[0] * anchors[:, 2:]  # <- variance centre
    size = anchors[:, 2:] * torch.exp(deltas[:, 2:] * VARIANCE[1])  # <- variance
    return torch.cat([centre - size / 2, centre + size / 2], dim=1).clamp(0, SIZE)


def iou(box, others):
    lt = torch.maximum(box[:2], others[:, :2])
    rb = torch.minimum(box[2:], others[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(1)
    area = lambda b: (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
    return inter / (area(box) + area(others) - inter)


def nms(boxes, scores, threshold=0.3):
    keep, order = [], scores.argsort(descending=True)
    while len(order):
        best, rest = order[0], order[1:]
        keep.append(best.item())
        order = rest[iou(boxes[best], boxes[rest]) <= threshold]
    return keep


def detect(logits, deltas, anchors, floor=0.15, limit=20):
    boxes, probs, found = decode(deltas, anchors), logits.softmax(-1), []
    for c in range(1, CLASSES + 1):  # <- classwise
        chosen = probs[:, c] > floor
        b, s = boxes[chosen], probs[chosen, c]
        found += [(s[k].item(), b[k].tolist()) for k in nms(b, s)]  # <- classwise
    return sorted(found, key=lambda f: -f[0])[:limit]


torch.manual_seed(0)
model = Detector().eval()
with torch.no_grad():
    for p in model.parameters():
        p.normal_(0, 1.7 / p[0].numel() ** 0.5 if p.dim() > 1 else 0.3)
torch.save(model.state_dict(), sys.argv[1])

anchors = make_anchors()
mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
gen = torch.Generator().manual_seed(77)
losses = []
with torch.no_grad():
    for _ in range(4):
        raw = torch.randint(0, 256, (2, 3, SIZE // 4, SIZE // 4), generator=gen)
        image = F.interpolate(raw.float(), scale_factor=4) / 255.0
        image = (image - mean) / std  # <- whiten
        logits, deltas = model(image)
        total = 0.0
        for lg, dl in zip(logits, deltas):
            for score, (x1, y1, x2, y2) in detect(lg, dl, anchors):
                total += score * (1 + (x1 + 2 * y1 + x2 + y2) / 50)
        losses.append(total / 2)
print(losses)
