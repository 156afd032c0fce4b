# SPDX-License-Identifier: Apache-2.0
"""An anchor-free YOLO in the manner of YOLOX (Ge et al., 2021): two levels, a decoupled head, boxes
decoded from a grid, a loss of GIoU, objectness and classes.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES, SIZE, BATCH, OBJECTS = 3, 32, 3, 4
STRIDES, WIDTHS, LARGEST = (4, 8), (8, 12, 16), 12.0


class BaseConv(nn.Module):
    def __init__(self, inside, outside, ksize, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, ksize, stride, (ksize - 1) // 2, bias=False)
        self.bn = nn.BatchNorm2d(outside, eps=1e-3, momentum=0.03)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))  # <- epsilon


class PAFPN(nn.Module):
    def __init__(self):
        super().__init__()
        c1, c2, c3 = WIDTHS
        self.stem = BaseConv(3, c1, 3, 2)
        self.dark2 = BaseConv(c1, c2, 3, 2)
        self.dark3 = BaseConv(c2, c3, 3, 2)
        self.lateral = BaseConv(c3, c2, 1)
        self.fuse = BaseConv(2 * c2, c2, 3)
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")

    def forward(self, x):
        p2 = self.dark2(self.stem(x))
        p3 = self.dark3(p2)
        up = self.upsample(self.lateral(p3))  # <- joined
        return self.fuse(torch.cat([up, p2], dim=1)), p3  # <- joined


class YOLOXHead(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stems, self.cls_convs, self.reg_convs = (nn.ModuleList() for _ in range(3))
        self.cls_preds, self.reg_preds, self.obj_preds = (nn.ModuleList() for _ in range(3))
        for inside in WIDTHS[1:]:
            self.stems.append(BaseConv(inside, width, 1))
            self.cls_convs.append(BaseConv(width, width, 3))
            self.reg_convs.append(BaseConv(width, width, 3))
            self.cls_preds.append(nn.Conv2d(width, CLASSES, 1))
            self.reg_preds.append(nn.Conv2d(width, 4, 1))
            self.obj_preds.append(nn.Conv2d(width, 1, 1))
        for preds in (self.cls_preds, self.obj_preds):
            for conv in preds:
                nn.init.constant_(conv.bias, -math.log((1 - 0.1) / 0.1))

    def forward(self, features):
        outputs, grids, strides = [], [], []
        for k, (x, stride) in enumerate(zip(features, STRIDES)):
            stem = self.stems[k](x)
            reg_feat = self.reg_convs[k](stem)
            cls_output = self.cls_preds[k](self.cls_convs[k](stem))
            reg_output, obj_output = self.reg_preds[k](reg_feat), self.obj_preds[k](reg_feat)
            output = torch.cat([reg_output, obj_output, cls_output], 1)
            outputs.append(output.flatten(2).permute(0, 2, 1))
            hsize, wsize = output.shape[-2:]
            yv, xv = torch.meshgrid(torch.arange(hsize), torch.arange(wsize), indexing="ij")
            grid = torch.stack((xv, yv), 2).view(-1, 2)  # <- grid
            grids.append(grid.float())
            strides.append(torch.full((grid.shape[0], 1), float(stride)))
        outputs, grids, strides = torch.cat(outputs, 1), torch.cat(grids), torch.cat(strides)
        xy = (outputs[..., :2] + grids) * strides  # <- grid
        wh = torch.exp(outputs[..., 2:4]) * strides
        return torch.cat([xy, wh, outputs[..., 4:]], dim=-1), (grids + 0.5) * strides, strides


class YOLOX(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = PAFPN()
        self.head = YOLOXHead()

    def forward(self, x):
        return self.head(self.backbone(x))


def giou_loss(pred, target):
    tl = torch.max(pred[:, :2] - pred[:, 2:] / 2, target[:, :2] - target[:, 2:] / 2)
    br = torch.min(pred[:, :2] + pred[:, 2:] / 2, target[:, :2] + target[:, 2:] / 2)
    area_i = (br - tl).clamp(min=0).prod(1)
    area_u = pred[:, 2:].prod(1) + target[:, 2:].prod(1) - area_i
    iou = area_i / (area_u + 1e-16)
    c_tl = torch.min(pred[:, :2] - pred[:, 2:] / 2, target[:, :2] - target[:, 2:] / 2)
    c_br = torch.max(pred[:, :2] + pred[:, 2:] / 2, target[:, :2] + target[:, 2:] / 2)
    area_c = (c_br - c_tl).prod(1)
    giou = iou - (area_c - area_u) / area_c.clamp(1e-16)  # <- enclosing
    return 1 - giou.clamp(min=-1.0, max=1.0), iou.detach()


@torch.no_grad()
def get_assignments(points, strides, boxes):
    """The smallest box of a fitting size around a point, -1 if there is none."""
    offset = (points[:, None] - boxes[None, :, :2]).abs()
    inside = (offset < boxes[None, :, 2:] / 2).all(-1)
    small = boxes[:, 2:].amax(1) < LARGEST
    fits = torch.where(strides == STRIDES[0], small, ~small)
    area = boxes[:, 2:].prod(1).expand(len(points), -1)
    area = area.masked_fill(~(inside & fits), float("inf"))
    least, matched = area.min(dim=1)  # <- smallest
    return torch.where(least.isinf(), -1, matched)


def get_losses(outputs, points, strides, targets):
    fg_masks, reg_targets, cls_targets = [], [], []
    for boxes, _ in targets:
        matched = get_assignments(points, strides, boxes)
        fg_masks.append(matched >= 0)
        reg_targets.append(boxes[matched[matched >= 0]])
    fg_mask = torch.cat(fg_masks)
    num_fg = max(int(fg_mask.sum()), 1)
    outputs = outputs.reshape(-1, 5 + CLASSES)
    loss_iou, ious = giou_loss(outputs[fg_mask, :4], torch.cat(reg_targets))
    for boxes, labels in targets:
        matched = get_assignments(points, strides, boxes)
        cls_targets.append(F.one_hot(labels[matched[matched >= 0]], CLASSES))
    cls_target = torch.cat(cls_targets) * ious.unsqueeze(-1)  # <- quality
    bce = nn.BCEWithLogitsLoss(reduction="none")
    loss_obj = bce(outputs[:, 4], fg_mask.float()).sum() / num_fg  # <- foreground
    loss_cls = bce(outputs[fg_mask, 5:], cls_target).sum() / num_fg  # <- quality
    return 5.0 * loss_iou.sum() / num_fg + loss_obj + loss_cls


def param_groups(model):
    biases, norms, kernels = [], [], []
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            norms.append(module.weight)
            biases.append(module.bias)
        elif isinstance(module, nn.Conv2d):
            kernels.append(module.weight)
            if module.bias is not None:
                biases.append(module.bias)
    return [{"params": kernels, "weight_decay": 0.01}, {"params": norms}, {"params": biases}]


torch.manual_seed(71)
model = YOLOX()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(param_groups(model), lr=0.02, momentum=0.9, nesterov=True)
rng = np.random.default_rng(73)
losses = []
for _ in range(3):
    images = torch.from_numpy(rng.random((BATCH, 3, SIZE, SIZE), dtype=np.float32))
    targets = []
    for _ in range(BATCH):
        wh = rng.uniform(5, 20, (OBJECTS, 2))
        xy = wh / 2 + rng.random((OBJECTS, 2)) * (SIZE - wh)
        boxes = torch.from_numpy(np.concatenate([xy, wh], axis=1).astype(np.float32))
        targets.append((boxes, torch.from_numpy(rng.integers(0, CLASSES, OBJECTS))))
    outputs, points, strides = model(images)
    loss = get_losses(outputs, points, strides, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov
    losses.append(loss.item())
