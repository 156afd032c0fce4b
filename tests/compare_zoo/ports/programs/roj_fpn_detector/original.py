# SPDX-License-Identifier: Apache-2.0
"""A tiny one-stage detector made of torchvision.ops parts: frozen norms, FPN, focal loss, GIoU, IoU-aware quality."""
import sys
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn
from torchvision import ops
from torchvision.models.detection._utils import BoxCoder, Matcher

torch.set_num_threads(1)

NUM_CLASSES = 3
STRIDES = (4, 8)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        norm = ops.FrozenBatchNorm2d
        self.stem = ops.Conv2dNormActivation(3, 6, stride=2, norm_layer=norm)
        self.c2 = ops.Conv2dNormActivation(6, 8, stride=2, norm_layer=norm)
        self.c3 = ops.Conv2dNormActivation(8, 12, stride=2, norm_layer=norm)
        self.fpn = ops.FeaturePyramidNetwork([8, 12], 8)  # <- bilinear_pyramid
        self.tower = nn.Conv2d(8, 8, 3, padding=1)
        self.cls_logits = nn.Conv2d(8, NUM_CLASSES, 3, padding=1)
        self.bbox_reg = nn.Conv2d(8, 4, 3, padding=1)
        self.quality = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, images):
        c2 = self.c2(self.stem(images))
        c3 = self.c3(c2)
        features = self.fpn(OrderedDict(p2=c2, p3=c3))  # <- bilinear_pyramid
        per_level = []
        for f in features.values():
            f = F.relu(self.tower(f))
            out = torch.cat([self.cls_logits(f), self.bbox_reg(f), self.quality(f)], dim=1)
            per_level.append(out.flatten(2).transpose(1, 2))
        out = torch.cat(per_level, dim=1)
        return out.split([NUM_CLASSES, 4, 1], dim=-1)


def make_anchors(size=32):
    anchors = []
    for s in STRIDES:
        centre = (torch.arange(size // s) + 0.5) * s
        cy, cx = torch.meshgrid(centre, centre, indexing="ij")
        side = torch.full_like(cx, 3.0 * s)
        cxcywh = torch.stack([cx, cy, side, side], dim=-1).view(-1, 4)
        anchors.append(ops.box_convert(cxcywh, "cxcywh", "xyxy"))
    return torch.cat(anchors)


class Criterion:
    def __init__(self, anchors):
        self.anchors = anchors
        self.matcher = Matcher(0.5, 0.3, allow_low_quality_matches=True)  # <- between_is_background
        self.coder = BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))

    def __call__(self, outputs, targets):
        total, num_pos = 0.0, 0
        for logits, deltas, quality, target in zip(*outputs, targets):
            matches = self.matcher(ops.box_iou(target["boxes"], self.anchors))  # <- between_is_background
            pos = matches >= 0
            valid = matches != Matcher.BETWEEN_THRESHOLDS  # <- between_is_background
            onehot = torch.zeros_like(logits)
            onehot[pos, target["labels"][matches[pos]]] = 1.0
            total = total + ops.sigmoid_focal_loss(logits[valid], onehot[valid], alpha=0.25, reduction="sum")  # <- alpha_swapped

            boxes = self.coder.decode_single(deltas[pos], self.anchors[pos])
            wanted = target["boxes"][matches[pos]]
            total = total + ops.generalized_box_iou_loss(boxes, wanted, reduction="sum")
            iou = torch.diagonal(ops.box_iou(boxes, wanted)).detach()  # <- quality_target_attached
            total = total + F.binary_cross_entropy_with_logits(quality[pos, 0], iou, reduction="sum")  # <- quality_target_attached
            num_pos += int(pos.sum())
        return total / max(num_pos, 1)


def make_batch(gen, n=3):
    images = torch.rand(n, 3, 32, 32, generator=gen)
    targets = []
    for i in range(n):
        count = 2 + i % 2
        centre = 8 + 16 * torch.rand(count, 2, generator=gen)
        half = 4 + 6 * torch.rand(count, 2, generator=gen)
        boxes = ops.clip_boxes_to_image(torch.cat([centre - half, centre + half], dim=1), (32, 32))
        labels = torch.randint(0, NUM_CLASSES, (count,), generator=gen)
        targets.append({"boxes": boxes, "labels": labels})
    return images, targets


def pretend_pretrained(model):
    for m in model.modules():
        if isinstance(m, ops.FrozenBatchNorm2d):
            m.running_mean.normal_(0.0, 0.1)
            m.running_var.uniform_(0.05, 0.2)
            m.weight.uniform_(0.8, 1.2)
            m.bias.normal_(0.2, 0.1)
    nn.init.constant_(model.cls_logits.bias, -2.0)


torch.manual_seed(6)
model = Detector()
pretend_pretrained(model)
torch.save(model.state_dict(), sys.argv[1])
criterion = Criterion(make_anchors())
weights = [p for name, p in model.named_parameters() if not name.endswith("bias")]
biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
optimizer = torch.optim.SGD(
    [
        {"params": weights, "lr": 0.01, "weight_decay": 1e-3},
        {"params": biases, "lr": 0.02, "weight_decay": 0.0},  # <- bias_same_rate
    ],
    momentum=0.9,
)
generator = torch.Generator().manual_seed(64)
losses = []
for _ in range(5):
    images, targets = make_batch(generator)
    loss = criterion(model(images), targets)  # <- bilinear_pyramid
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- bias_same_rate
    losses.append(loss.item())
print(losses)
