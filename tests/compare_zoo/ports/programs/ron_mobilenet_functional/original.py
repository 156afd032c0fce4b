# SPDX-License-Identifier: Apache-2.0
"""A cut-down torchvision MobileNetV3 on toy pictures: RMSprop recipe of the references, late freeze of the norms."""
import sys
from functools import partial

import torch
from torch import nn
from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3
from torchvision.transforms import v2

torch.set_num_threads(1)
torch.manual_seed(3)

EPOCHS, NUM_BATCH_NORM_UPDATE_EPOCHS, NUM_CLASSES = 5, 2, 7


def build_model():
    conf = partial(InvertedResidualConfig, dilation=1, width_mult=1.0)
    settings = [
        conf(8, 3, 8, 8, True, "RE", 1),  # <- se_gate
        conf(8, 3, 24, 16, False, "RE", 2),
        conf(16, 5, 40, 16, True, "HS", 1),  # <- se_gate
    ]
    return MobileNetV3(  # <- se_gate bn_unbiased
        settings,
        last_channel=32,
        num_classes=NUM_CLASSES,
        norm_layer=partial(nn.BatchNorm2d, eps=0.001, momentum=0.3),  # <- bn_unbiased
        dropout=0.0,
    )


def make_dataset():
    g = torch.Generator().manual_seed(1234)
    images = torch.randint(0, 256, (EPOCHS, 4, 3, 16, 16), generator=g, dtype=torch.uint8)
    targets = torch.randint(0, NUM_CLASSES, (EPOCHS, 4), generator=g)
    images = (images.float() * torch.linspace(0.4, 1.0, NUM_CLASSES)[targets][..., None, None, None]).to(torch.uint8)
    return images, targets


def train_one_epoch(model, criterion, optimizer, image, target):
    image = transform(image)
    output = model(image)  # <- se_gate bn_unbiased freeze_epoch
    loss = criterion(output, target)  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rmsprop_eps
    return loss.item()


transform = v2.Compose(
    [
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ]
)
model = build_model()
with torch.no_grad():
    for m in model.modules():
        if isinstance(m, nn.Linear):
            m.weight.normal_(0, 0.3)
torch.save(model.state_dict(), sys.argv[1])

criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
optimizer = torch.optim.RMSprop(  # <- rmsprop_eps
    model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-5, eps=0.0316, alpha=0.9  # <- rmsprop_eps
)

images, targets = make_dataset()
losses = []
model.train()
for epoch in range(EPOCHS):
    if epoch > NUM_BATCH_NORM_UPDATE_EPOCHS:  # <- freeze_epoch
        for m in model.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.eval()  # <- freeze_epoch
    losses.append(train_one_epoch(model, criterion, optimizer, images[epoch], targets[epoch]))

print(losses)
