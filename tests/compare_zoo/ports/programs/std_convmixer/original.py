# SPDX-License-Identifier: Apache-2.0
"""ConvMixer in the manner of its repository, label smoothing, SGD with Nesterov momentum."""

import sys

import torch
import torch.nn as nn


class Residual(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x) + x  # <- residual


def ConvMixer(dim, depth, kernel_size=5, patch_size=3, n_classes=7):
    return nn.Sequential(
        nn.Conv2d(3, dim, kernel_size=patch_size, stride=patch_size, bias=False),
        nn.GELU(),  # <- gelu
        nn.BatchNorm2d(dim),  # <- variance
        *[
            nn.Sequential(
                Residual(
                    nn.Sequential(
                        nn.Conv2d(dim, dim, kernel_size, groups=dim, padding="same", bias=False),
                        nn.GELU(),  # <- gelu residual
                        nn.BatchNorm2d(dim),  # <- variance residual
                    )
                ),
                nn.Conv2d(dim, dim, kernel_size=1, bias=False),
                nn.GELU(),  # <- gelu
                nn.BatchNorm2d(dim),  # <- variance
            )
            for _ in range(depth)
        ],
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
        nn.Linear(dim, n_classes),
    )


torch.manual_seed(0)
model = ConvMixer(16, 2)
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)  # <- nesterov
generator = torch.Generator().manual_seed(11)
losses = []
for epoch in range(4):
    images = torch.randn(6, 3, 18, 18, generator=generator)
    targets = torch.randint(0, 7, (6,), generator=generator)
    output = model(images)
    loss = criterion(output, targets)  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov
    losses.append(loss.item())
print(losses)
