# SPDX-License-Identifier: Apache-2.0
"""Small image classifier: torch.nn ConvNet, label smoothing, SGD with Nesterov momentum."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

CLASSES = 7
STEPS = 4


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8, eps=1e-5)  # <- bn_eps
        self.pool = nn.MaxPool2d(2)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)  # <- pad_side
        self.act = nn.LeakyReLU(0.1)
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.pool(F.relu(self.norm(self.stem(x))))  # <- bn_eps
        x = self.act(self.down(x))  # <- pad_side
        x = x.mean(dim=(2, 3))
        return self.fc(x)


def batches(n):
    gen = torch.Generator().manual_seed(77)
    for _ in range(n):
        images = torch.rand(12, 3, 16, 16, generator=gen) * 255.0
        labels = torch.randint(0, CLASSES, (12,), generator=gen)
        yield images / 127.5 - 1.0, labels


torch.manual_seed(0)
model = ConvNet()
torch.save(model.state_dict(), sys.argv[1])

decayed = [p for p in model.parameters() if p.ndim > 1]
plain = [p for p in model.parameters() if p.ndim == 1]
optimizer = torch.optim.SGD(
    [
        {"params": decayed, "weight_decay": 2e-2},  # <- decay_scaled
        {"params": plain, "weight_decay": 0.0},
    ],
    lr=0.1,
    momentum=0.9,
    nesterov=True,  # <- lookahead
)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smooth_spread

losses = []
model.train()
for images, labels in batches(STEPS):
    optimizer.zero_grad()
    loss = criterion(model(images), labels)  # <- smooth_spread
    loss.backward()
    optimizer.step()  # <- decay_scaled lookahead
    losses.append(loss.item())

print(losses)
