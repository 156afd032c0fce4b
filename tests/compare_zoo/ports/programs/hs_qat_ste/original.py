# SPDX-License-Identifier: Apache-2.0
"""Quantisation-aware training: own autograd.Function, channelwise weights, averaged activation range."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)

BITS_W, BITS_A, BATCH, STEPS = 4, 6, 8, 6


class FakeQuantise(torch.autograd.Function):
    """Rounds to the grid; the gradient passes inside the range and is zero outside."""

    @staticmethod
    def forward(ctx, x, scale, low, high):
        q = torch.round(x / scale)
        ctx.save_for_backward((q >= low) & (q <= high))
        return q.clamp(low, high) * scale

    @staticmethod
    def backward(ctx, grad):
        inside, = ctx.saved_tensors
        return grad * inside, None, None, None


def quantised_weight(w):
    top = 2 ** (BITS_W - 1) - 1
    scale = 0.8 * w.detach().abs().flatten(1).amax(1) / top          # clips the outliers
    return FakeQuantise.apply(w, scale.view(-1, *[1] * (w.dim() - 1)), -top, top)


class ActivationQuantiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("peak", torch.tensor(0.0))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):                                            # x >= 0
        if self.training:
            now = x.detach().max() * 0.9
            self.peak.copy_(now if self.seen == 0 else 0.75 * self.peak + 0.25 * now)
            self.seen += 1
        levels = 2 ** BITS_A - 1
        return FakeQuantise.apply(x, self.peak / levels, 0, levels)


class QConv(nn.Conv2d):
    def forward(self, x):
        return F.conv2d(x, quantised_weight(self.weight), self.bias, self.stride, self.padding, groups=self.groups)


class QLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, quantised_weight(self.weight), self.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3, stride=2, padding=1)          # first layer stays in float
        self.act0 = ActivationQuantiser()
        self.depthwise = QConv(6, 6, 3, padding=1, groups=6)
        self.pointwise = QConv(6, 10, 1)
        self.act1 = ActivationQuantiser()
        self.hidden = QLinear(10, 16)
        self.act2 = ActivationQuantiser()
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        x = self.act0(F.relu(self.stem(x)))
        x = self.act1(F.relu6(self.pointwise(self.depthwise(x))))
        x = F.avg_pool2d(x, x.shape[-1]).flatten(1)
        x = self.act2(F.relu(self.hidden(x)))
        return self.fc(x)


model = Net()
torch.save(model.state_dict(), sys.argv[1])
g = torch.Generator().manual_seed(4)
images = torch.randn(48, 1, 8, 8, generator=g)
labels = (images[:, 0, :4].mean((1, 2)) > 0).long() + (images[:, 0, 4:].mean((1, 2)) > 0).long()

optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
model.train()
for step in range(STEPS):
    rows = torch.randint(0, 48, (BATCH,), generator=g)
    loss = F.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

print(losses)
