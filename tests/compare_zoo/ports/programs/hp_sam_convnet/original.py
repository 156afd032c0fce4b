# SPDX-License-Identifier: Apache-2.0
"""Sharpness-aware minimisation of a small convolutional classifier, two backward passes a step."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class ConvNet(nn.Module):
    def __init__(self, width=8, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.norm1 = nn.GroupNorm(2, width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, 2 * width)
        self.conv3 = nn.Conv2d(2 * width, 2 * width, 1)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.avg_pool2d(x, 2)
        x = F.relu(self.norm2(self.conv2(x)))
        x = x + torch.tanh(self.conv3(x))
        return self.head(x.mean((2, 3)))


class SAM(torch.optim.Optimizer):
    """The usual wrapper: climb to the worst point within rho, take its gradient, step from where we were."""

    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = self._grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old"] = p.detach().clone()
                p.add_(p.grad * scale)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.copy_(self.state[p]["old"])
        self.base.step()
        self.zero_grad()

    def _grad_norm(self):
        return torch.norm(torch.stack([p.grad.norm(p=2) for g in self.param_groups for p in g["params"]
                                       if p.grad is not None]), p=2)


torch.manual_seed(11)
model = ConvNet()
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(12)
images = torch.randn(40, 3, 12, 12, generator=gen)
labels = torch.randint(0, 5, (40,), generator=gen)

opt = SAM(model.parameters(), torch.optim.SGD, rho=0.1, lr=0.1, momentum=0.9, weight_decay=1e-3)
losses = []
for step in range(5):
    x, y = images[step * 8:step * 8 + 8], labels[step * 8:step * 8 + 8]
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
    loss.backward()
    opt.first_step()
    F.cross_entropy(model(x), y, label_smoothing=0.1).backward()
    opt.second_step()
    losses.append(loss.item())
print(losses)
