# SPDX-License-Identifier: Apache-2.0
"""Segmentation with torchvision's FCN and its auxiliary head on a small dilated backbone, as the
reference scripts train it: two losses, a border that does not count, a polynomial rate.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.resnet import BasicBlock, conv1x1
from torchvision.models.segmentation.fcn import FCN, FCNHead

CLASSES, STEPS = 4, 5


def stage(c_in, c_out, stride):
    shortcut = nn.Sequential(conv1x1(c_in, c_out, stride), nn.BatchNorm2d(c_out))
    return BasicBlock(c_in, c_out, stride, shortcut)


torch.manual_seed(410)
layers = {
    "conv1": nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False),  # <- colours
    "bn1": nn.BatchNorm2d(8),
    "relu": nn.ReLU(inplace=True),
    "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
    "layer3": stage(8, 16, 2),
    "layer4": stage(16, 24, 2),
}
body = nn.Module()
for name, layer in layers.items():
    body.add_module(name, layer)
backbone = IntermediateLayerGetter(body, {"layer4": "out", "layer3": "aux"})
model = FCN(backbone, FCNHead(24, CLASSES), FCNHead(16, CLASSES))
for module in model.modules():
    if isinstance(module, nn.Dropout):
        module.p = 0.0
    if isinstance(module, nn.BatchNorm2d):
        nn.init.uniform_(module.weight, 0.7, 1.3)
        nn.init.uniform_(module.bias, -0.2, 0.2)
torch.save(model.state_dict(), sys.argv[1])


def criterion(outputs, target):
    losses = {}
    for name, scores in outputs.items():
        losses[name] = F.cross_entropy(scores, target, ignore_index=255)  # <- border
    return losses["out"] + 0.5 * losses["aux"]  # <- auxiliary


groups = [
    {"params": list(model.backbone.parameters())},
    {"params": list(model.classifier.parameters())},
    {"params": list(model.aux_classifier.parameters()), "lr": 0.1},  # <- rates
]
optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=1e-3)  # <- rates
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=STEPS, power=0.9)
generator = torch.Generator().manual_seed(411)
losses = []
model.train()
for _ in range(STEPS):
    image = torch.rand(4, 3, 64, 64, generator=generator)
    coarse = torch.randint(0, CLASSES, (4, 8, 8), generator=generator)
    target = coarse.repeat_interleave(8, 1).repeat_interleave(8, 2)
    edge = torch.rand(4, 64, 64, generator=generator) < 0.1
    target = target.masked_fill(edge, 255)  # <- border
    image = image + 0.2 * coarse.float().repeat_interleave(8, 1).repeat_interleave(8, 2)[:, None]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    image = (image - mean[:, None, None]) / std[:, None, None]
    outputs = model(image)  # <- corners colours
    loss = criterion(outputs, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rates
    scheduler.step()
    losses.append(loss.item())
