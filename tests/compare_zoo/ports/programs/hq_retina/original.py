# SPDX-License-Identifier: Apache-2.0
"""RetinaNet-like detector on two levels: per-image anchor matching, focal loss, smooth-L1 regression."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(97)

CLASSES, STRIDES, SIZES, RATIOS = 3, (4, 8), (6.0, 12.0), (0.5, 1.0, 2.0)
A = len(RATIOS)


def make_anchors(img=24):
    boxes = []
    for stride, size in zip(STRIDES, SIZES):
        for i in range(img // stride):
            for j in range(img // stride):
                cx, cy = (j + 0.5) * stride, (i + 0.5) * stride
                for r in RATIOS:
                    w, h = size / math.sqrt(r), size * math.sqrt(r)
                    boxes.append([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
    return torch.tensor(boxes)


class Detector(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, c, 3, 2, 1), nn.ReLU())
        self.c4 = nn.Sequential(nn.Conv2d(c, c, 3, 2, 1), nn.ReLU())
        self.lat3, self.lat4 = nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
        self.cls_tower = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1), nn.ReLU())
        self.box_tower = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1), nn.ReLU())
        self.cls_score = nn.Conv2d(c, A * CLASSES, 3, 1, 1)
        self.bbox_pred = nn.Conv2d(c, A * 4, 3, 1, 1)
        nn.init.constant_(self.cls_score.bias, -math.log((1 - 0.05) / 0.05))

    def forward(self, x):
        c3 = self.stem(x)
        p4 = self.lat4(self.c4(c3))
        p3 = self.lat3(c3) + F.interpolate(p4, scale_factor=2)
        cls, box = [], []
        for f in (p3, p4):
            n, _, h, w = f.shape
            s = self.cls_score(self.cls_tower(f)).view(n, A, CLASSES, h, w).permute(0, 3, 4, 1, 2)
            b = self.bbox_pred(self.box_tower(f)).view(n, A, 4, h, w).permute(0, 3, 4, 1, 2)
            cls.append(s.reshape(n, -1, CLASSES)), box.append(b.reshape(n, -1, 4))
        return torch.cat(cls, 1), torch.cat(box, 1)


def iou(a, b):
    ix = min(a[2], b[2]) - max(a[0], b[0])
    iy = min(a[3], b[3]) - max(a[1], b[1])
    inter = max(ix, 0.0) * max(iy, 0.0)
    return inter / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter)


def match(anchors, gts):
    """-1 background, -2 ignored, else the index of the object."""
    table = [[iou(a, g) for g in gts] for a in anchors]
    out = []
    for row in table:
        best = max(range(len(gts)), key=lambda k: row[k])
        out.append(best if row[best] >= 0.5 else (-2 if row[best] >= 0.35 else -1))
    for k in range(len(gts)):                       # every object keeps its best anchor
        col = [row[k] for row in table]
        out[col.index(max(col))] = k
    return torch.tensor(out)


def encode(a, g):
    aw, ah, gw, gh = a[:, 2] - a[:, 0], a[:, 3] - a[:, 1], g[:, 2] - g[:, 0], g[:, 3] - g[:, 1]
    return torch.stack([((g[:, 0] + g[:, 2]) - (a[:, 0] + a[:, 2])) / 2 / aw / 0.1,
                        ((g[:, 1] + g[:, 3]) - (a[:, 1] + a[:, 3])) / 2 / ah / 0.1,
                        torch.log(gw / aw) / 0.2, torch.log(gh / ah) / 0.2], 1)


def focal(logits, target, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    pt = p * target + (1 - p) * (1 - target)
    return ((alpha * target + (1 - alpha) * (1 - target)) * (1 - pt) ** gamma * ce).sum()


def sample(gen):
    k = int(torch.randint(1, 4, (1,), generator=gen))
    xy, wh = 12 * torch.rand(k, 2, generator=gen), 4 + 8 * torch.rand(k, 2, generator=gen)
    labels = torch.randint(0, CLASSES, (k,), generator=gen)
    img = 0.1 * torch.randn(3, 24, 24, generator=gen)
    boxes = torch.cat([xy, xy + wh], 1)
    for b, c in zip(boxes.round().int().tolist(), labels.tolist()):
        img[c, b[1]:b[3], b[0]:b[2]] += 1
    return img, boxes, labels


model = Detector()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
anchors = make_anchors()
gen = torch.Generator().manual_seed(970)
losses = []
for step in range(5):
    batch = [sample(gen) for _ in range(3)]
    cls, box = model(torch.stack([b[0] for b in batch]))
    cls_loss, box_loss, num_pos = 0.0, 0.0, 0
    for i, (_, gt, labels) in enumerate(batch):
        m = match(anchors.tolist(), gt.tolist())
        pos = m >= 0
        target = torch.zeros_like(cls[i])
        target[pos, labels[m[pos]]] = 1.0
        cls_loss = cls_loss + focal(cls[i][m > -2], target[m > -2])
        box_loss = box_loss + F.smooth_l1_loss(box[i][pos], encode(anchors[pos], gt[m[pos]]), beta=0.11, reduction="sum")
        num_pos += int(pos.sum())
    loss = (cls_loss + 0.5 * box_loss) / max(1, num_pos)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
    losses.append(loss.item())
print(losses)
