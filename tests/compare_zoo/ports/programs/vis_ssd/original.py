# SPDX-License-Identifier: Apache-2.0
"""A single shot detector: two feature maps, prior boxes, matching by overlap, hard negatives."""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

IMAGE, CLASSES, BATCH = 32, 4, 3
MAPS, SIZES, RATIOS = (8, 4), (0.2, 0.45, 0.8), (1.0, 2.0, 0.5)
VARIANCES = (0.1, 0.2)  # <- variance
MEAN = (104.0, 117.0, 123.0)


class L2Norm(nn.Module):
    def __init__(self, n_channels, scale):
        super().__init__()
        self.eps = 1e-10
        self.weight = nn.Parameter(torch.full((n_channels,), float(scale)))

    def forward(self, x):
        norm = x.pow(2).sum(dim=1, keepdim=True).sqrt() + self.eps  # <- normed
        x = torch.div(x, norm)  # <- normed
        return self.weight.unsqueeze(0).unsqueeze(2).unsqueeze(3).expand_as(x) * x


class SSD(nn.Module):
    def __init__(self):
        super().__init__()
        self.vgg = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 12, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(12, 12, 3, padding=2, dilation=2),  # <- dilated
            nn.ReLU(inplace=True),
        )
        self.L2Norm = L2Norm(12, 4)
        self.extras = nn.Sequential(  # <- source
            nn.Conv2d(12, 8, 1), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.ReLU()
        )
        boxes = len(RATIOS) + 1
        self.loc = nn.ModuleList([nn.Conv2d(12, boxes * 4, 3, padding=1) for _ in MAPS])
        self.conf = nn.ModuleList([nn.Conv2d(12, boxes * CLASSES, 3, padding=1) for _ in MAPS])

    def forward(self, x):
        x = self.vgg(x)  # <- dilated
        sources = [self.L2Norm(x), self.extras(x)]  # <- source normed
        loc, conf = [], []
        for s, to_loc, to_conf in zip(sources, self.loc, self.conf):
            loc.append(to_loc(s).permute(0, 2, 3, 1).contiguous())  # <- source
            conf.append(to_conf(s).permute(0, 2, 3, 1).contiguous())  # <- source
        loc = torch.cat([o.view(o.size(0), -1) for o in loc], 1)
        conf = torch.cat([o.view(o.size(0), -1) for o in conf], 1)
        return loc.view(loc.size(0), -1, 4), conf.view(conf.size(0), -1, CLASSES)


def prior_boxes():
    priors = []
    for k, f in enumerate(MAPS):
        for i in range(f):
            for j in range(f):
                cx, cy = (j + 0.5) / f, (i + 0.5) / f  # <- centre
                for ratio in RATIOS:
                    r = math.sqrt(ratio)
                    priors.append([cx, cy, SIZES[k] * r, SIZES[k] / r])
                s = math.sqrt(SIZES[k] * SIZES[k + 1])
                priors.append([cx, cy, s, s])
    return torch.tensor(priors).clamp_(max=1, min=0)  # <- centre


def point_form(boxes):
    return torch.cat((boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2), 1)


def jaccard(box_a, box_b):
    max_xy = torch.min(box_a[:, None, 2:], box_b[None, :, 2:])
    min_xy = torch.max(box_a[:, None, :2], box_b[None, :, :2])
    inter = (max_xy - min_xy).clamp(min=0).prod(2)
    area_a = (box_a[:, 2:] - box_a[:, :2]).prod(1)[:, None]
    area_b = (box_b[:, 2:] - box_b[:, :2]).prod(1)[None]
    return inter / (area_a + area_b - inter)


def encode(matched, priors, variances):
    g_cxcy = (matched[:, :2] + matched[:, 2:]) / 2 - priors[:, :2]
    g_cxcy = g_cxcy / (variances[0] * priors[:, 2:])
    g_wh = (
        torch.log((matched[:, 2:] - matched[:, :2]) / priors[:, 2:]) / variances[1]
    )  # <- variance
    return torch.cat([g_cxcy, g_wh], 1)  # <- variance


def match(threshold, truths, priors, variances, labels):
    overlaps = jaccard(truths, point_form(priors))
    _, best_prior_idx = overlaps.max(1)
    best_truth_overlap, best_truth_idx = overlaps.max(0)
    best_truth_overlap.index_fill_(0, best_prior_idx, 2)  # <- forced
    for j in range(best_prior_idx.size(0)):
        best_truth_idx[best_prior_idx[j]] = j  # <- forced
    conf = labels[best_truth_idx] + 1  # <- forced
    conf[best_truth_overlap < threshold] = 0  # <- forced
    return encode(truths[best_truth_idx], priors, variances), conf  # <- variance


class MultiBoxLoss(nn.Module):
    def __init__(self, threshold=0.5, negpos_ratio=3):
        super().__init__()
        self.threshold, self.negpos_ratio = threshold, negpos_ratio

    def forward(self, loc_data, conf_data, priors, targets):
        loc_t, conf_t = [], []
        for boxes, labels in targets:
            loc, conf = match(self.threshold, boxes, priors, VARIANCES, labels)
            loc_t.append(loc)
            conf_t.append(conf)
        loc_t, conf_t = torch.stack(loc_t), torch.stack(conf_t)
        pos = conf_t > 0
        loss_l = F.smooth_l1_loss(loc_data[pos], loc_t[pos], reduction="sum")
        with torch.no_grad():
            flat = F.cross_entropy(conf_data.view(-1, CLASSES), conf_t.view(-1), reduction="none")
            mining = flat.view_as(conf_t).masked_fill(pos, 0)
            _, loss_idx = mining.sort(1, descending=True)  # <- mined
            _, idx_rank = loss_idx.sort(1)  # <- mined
            num_neg = torch.clamp(self.negpos_ratio * pos.sum(1, keepdim=True), max=pos.size(1) - 1)
            neg = idx_rank < num_neg  # <- mined
        keep = pos | neg  # <- mined
        loss_c = F.cross_entropy(conf_data[keep], conf_t[keep], reduction="sum")  # <- mined
        n = pos.sum()  # <- divided
        return loss_l / n, loss_c / n  # <- divided


torch.manual_seed(41)
net = SSD()
torch.save(net.state_dict(), sys.argv[1])
priors = prior_boxes()
optimizer = torch.optim.SGD(net.parameters(), lr=4e-3, momentum=0.9, weight_decay=5e-4)
criterion = MultiBoxLoss()
rng = np.random.default_rng(42)
losses = []
for _ in range(4):
    images = rng.uniform(0, 255, (BATCH, IMAGE, IMAGE, 3)).astype(np.float32)
    targets = []
    for image in images:
        boxes, labels = [], []
        for _ in range(int(rng.integers(1, 4))):
            w, h = rng.integers(6, 22, 2)
            x, y = rng.integers(0, IMAGE - w), rng.integers(0, IMAGE - h)
            label = int(rng.integers(0, CLASSES - 1))
            image[y : y + h, x : x + w, label] = 240
            boxes.append([x, y, x + w, y + h])
            labels.append(label)
        targets.append((torch.tensor(np.array(boxes)).float() / IMAGE, torch.tensor(labels)))
    images = torch.from_numpy(images - np.float32(MEAN)).permute(0, 3, 1, 2) / 64
    loc, conf = net(images)
    optimizer.zero_grad()
    loss_l, loss_c = criterion(loc, conf, priors, targets)
    loss = loss_l + loss_c
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
