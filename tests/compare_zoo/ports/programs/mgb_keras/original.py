# SPDX-License-Identifier: Apache-2.0
"""CNN for tiny textures in torch, agreeing with the Keras reference; RMSprop, L2 on kernels."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

NUM_CLASSES = 6
L2 = 5e-3


class SeparableUnit(nn.Module):
    """Depthwise 3x3 with stride 2 and "same" padding as TensorFlow does it, then pointwise."""

    def __init__(self, cin, cout):
        super().__init__()
        self.depthwise = nn.Conv2d(cin, cin, 3, stride=2, groups=cin, bias=False)
        self.pointwise = nn.Conv2d(cin, cout, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01)  # <- bn_eps

    def forward(self, x):
        x = F.pad(x, (0, 1, 0, 1))
        x = self.pointwise(self.depthwise(x))
        return F.relu6(self.bn(x))  # <- bn_eps


class TextureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.unit = SeparableUnit(6, 10)
        self.avg = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)  # <- avg_border
        self.fc1 = nn.Linear(10 * 6 * 6, 24)
        self.fc2 = nn.Linear(24, NUM_CLASSES)
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(m.weight)
                if m.bias is not None:
                    nn.init.zeros_(m.bias)

    def forward(self, x):
        x = F.elu(self.conv(x))
        x = self.avg(self.unit(x))  # <- avg_border
        x = torch.flatten(x, 1)  # <- flatten_order
        return self.fc2(torch.tanh(self.fc1(x)))  # <- flatten_order


torch.manual_seed(3)
net = TextureNet()
torch.save(net.state_dict(), sys.argv[1])
opt = torch.optim.RMSprop(net.parameters(), lr=2e-3, alpha=0.9, eps=1e-7, momentum=0.5)  # <- rho
rng = torch.Generator().manual_seed(99)
images = torch.rand(40, 1, 12, 12, generator=rng)
labels = torch.randint(0, NUM_CLASSES, (40,), generator=rng)

losses = []
for step in range(4):
    x, y = images[step * 10:(step + 1) * 10], labels[step * 10:(step + 1) * 10]
    penalty = sum(p.pow(2).sum() for p in net.parameters() if p.ndim > 1)  # <- kernel_penalty
    loss = F.cross_entropy(net(x), y) + L2 * penalty  # <- kernel_penalty
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- rho
    losses.append(loss.item())
print(losses)
