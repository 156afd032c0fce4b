# SPDX-License-Identifier: Apache-2.0
"""Region proposals from the pieces of torchvision: frozen batch norms, a feature pyramid, anchors,
matcher and box coder; linear warm-up.
"""

import itertools
import sys
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models.detection._utils import BoxCoder, Matcher
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import RPNHead, concat_box_prediction_layers
from torchvision.ops import Conv2dNormActivation, FeaturePyramidNetwork, FrozenBatchNorm2d, box_iou
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool


class Proposals(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [3, 16, 24, 32]
        frozen = {"stride": 2, "norm_layer": FrozenBatchNorm2d}  # <- frozen
        pairs = itertools.pairwise(widths)
        self.body = nn.ModuleList([Conv2dNormActivation(*pair, **frozen) for pair in pairs])
        self.fpn = FeaturePyramidNetwork([24, 32], 16, extra_blocks=LastLevelMaxPool())
        self.head = RPNHead(16, 3)
        self.anchors = AnchorGenerator(((12,), (24,), (48,)), ((0.5, 1.0, 2.0),) * 3)  # <- ratios
        self.matcher = Matcher(0.6, 0.3, allow_low_quality_matches=True)  # <- low_quality
        self.coder = BoxCoder((1.0, 1.0, 1.0, 1.0))

    def forward(self, images, targets):
        c2 = self.body[0](images)  # <- frozen
        c3 = self.body[1](c2)  # <- frozen
        c4 = self.body[2](c3)  # <- frozen
        features = list(self.fpn(OrderedDict(c3=c3, c4=c4)).values())  # <- upsample
        objectness, deltas = concat_box_prediction_layers(*self.head(features))
        sizes = [tuple(images.shape[-2:])] * len(images)
        anchors = self.anchors(ImageList(images, sizes), features)  # <- ratios
        labels, matched = [], []
        for boxes, own in zip(targets, anchors):
            found = self.matcher(box_iou(boxes, own))  # <- low_quality ratios
            label = (found >= 0).float()  # <- low_quality
            label[found == Matcher.BETWEEN_THRESHOLDS] = -1.0
            labels.append(label)
            matched.append(boxes[found.clamp(min=0)])
        wanted = torch.cat(self.coder.encode(matched, anchors))
        labels = torch.cat(labels)
        positive, valid = labels == 1, labels >= 0  # <- low_quality
        box_loss = F.smooth_l1_loss(
            deltas[positive], wanted[positive], beta=1 / 9, reduction="sum"
        )  # <- beta
        box_loss = box_loss / valid.sum()  # <- beta
        return F.binary_cross_entropy_with_logits(objectness[valid, 0], labels[valid]) + box_loss


def batch(generator):
    images = torch.rand(2, 3, 64, 64, generator=generator)
    targets = []
    for count in (2, 3):
        corner = torch.rand(count, 2, generator=generator) * 34
        size = 8 + torch.rand(count, 2, generator=generator) * 22
        targets.append(torch.cat((corner, corner + size), dim=1))
    return images, targets


torch.manual_seed(370)
model = Proposals()
with torch.no_grad():
    for norm in (layer[1] for layer in model.body):
        norm.weight.uniform_(0.6, 1.4)
        norm.bias.uniform_(-0.3, 0.3)
        norm.running_mean.normal_(0, 0.2)
        norm.running_var.uniform_(0.4, 1.2)
    for p in model.head.parameters():
        p.mul_(10.0)
torch.save(model.state_dict(), sys.argv[1])
parameters = list(model.parameters())  # <- frozen
optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)  # <- frozen
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=3)
generator = torch.Generator().manual_seed(371)
losses = []
for _ in range(4):
    loss = model(*batch(generator))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- frozen
    scheduler.step()
    losses.append(loss.item())
