# SPDX-License-Identifier: Apache-2.0
"""A small torchvision DenseNet on textures: SGD with Nesterov momentum, a step schedule, a test."""

import sys

import torch
from torch import nn
from torchvision.models import DenseNet

torch.manual_seed(310)
model = DenseNet(
    growth_rate=6,
    block_config=(3, 3, 2),
    num_init_features=12,
    bn_size=2,
    drop_rate=0.0,
    num_classes=5,
)
with torch.no_grad():
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.uniform_(0.6, 1.4)
            module.bias.uniform_(-0.3, 0.3)
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.SGD(
    model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-2
)  # <- nesterov
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2], gamma=0.1)
criterion = nn.CrossEntropyLoss()
generator = torch.Generator().manual_seed(311)


def batch():
    images = torch.rand(12, 3, 64, 64, generator=generator)
    labels = torch.randint(0, 5, (12,), generator=generator)
    images = images + 0.3 * torch.linspace(0, 3, 64) * labels[:, None, None, None]
    return (images - 0.5) / 0.25, labels


losses = []
model.train()
for _ in range(4):
    images, labels = batch()
    logits = model(images)  # <- order pool last_relu
    loss = criterion(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov
    scheduler.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    images, labels = batch()
    losses.append(criterion(model(images), labels).item())  # <- running
