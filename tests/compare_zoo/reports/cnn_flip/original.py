# SPDX-License-Identifier: Apache-2.0
"""Image classifier with flip augmentation at test time: two passes, averaged probabilities."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(13)

net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.GroupNorm(2, 8),
    nn.SiLU(),
    nn.Conv2d(8, 16, 3, stride=2, padding=1),
    nn.BatchNorm2d(16),
    nn.SiLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 10),
)
for m in net:
    if isinstance(m, (nn.GroupNorm, nn.BatchNorm2d)):
        nn.init.normal_(m.weight, 1.0, 0.3)
        nn.init.normal_(m.bias, 0.0, 0.3)
    if isinstance(m, nn.BatchNorm2d):
        m.running_mean.normal_(0, 0.2)
        m.running_var.uniform_(0.2, 1.0)
nn.init.normal_(net[-1].weight, std=1.0)
torch.save(net.state_dict(), sys.argv[1])
net.eval()

g = torch.Generator().manual_seed(103)
losses = []
with torch.inference_mode():
    for b in range(4):
        images = torch.randn(8, 3, 12, 12, generator=g)
        labels = torch.randint(0, 10, (8,), generator=g)
        plain = net(images).softmax(1)
        mirrored = net(torch.flip(images, dims=[3])).softmax(1)
        prob = (plain + mirrored) / 2
        nll = -prob.gather(1, labels[:, None]).log().mean()
        losses.append(float(nll))
        acc = (prob.argmax(1) == labels).float().mean()
        print(f"[{b}] nll={losses[-1]:.4f} acc={acc:.3f}")
print(losses)
