# SPDX-License-Identifier: Apache-2.0
"""EfficientNet-like classifier: MBConv blocks with squeeze-excite, RMSprop, weight EMA."""

import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class SqueezeExcite(nn.Module):
    def __init__(self, chs, rd):
        super().__init__()
        self.conv_reduce = nn.Conv2d(chs, rd, 1)
        self.conv_expand = nn.Conv2d(rd, chs, 1)

    def forward(self, x):
        x_se = x.mean((2, 3), keepdim=True)
        x_se = F.silu(self.conv_reduce(x_se))  # <- squeeze_act
        return x * torch.sigmoid(self.conv_expand(x_se))


class InvertedResidual(nn.Module):
    def __init__(self, cin, cout, stride, exp=3):
        super().__init__()
        mid = cin * exp
        self.has_skip = cin == cout and stride == 1
        self.stride = stride
        self.conv_pw = nn.Conv2d(cin, mid, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(mid, eps=1e-3)
        self.conv_dw = nn.Conv2d(mid, mid, 3, stride=stride, groups=mid, bias=False)
        self.bn2 = nn.BatchNorm2d(mid, eps=1e-3)
        self.se = SqueezeExcite(mid, max(1, cin // 4))
        self.conv_pwl = nn.Conv2d(mid, cout, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(cout, eps=1e-3)

    def forward(self, x):
        shortcut = x
        x = F.silu(self.bn1(self.conv_pw(x)))  # <- biased_var
        # TF "SAME": the odd pixel of padding goes to the bottom and the right
        x = F.pad(x, (0, 1, 0, 1) if self.stride == 2 else (1, 1, 1, 1))  # <- same_pad
        x = F.silu(self.bn2(self.conv_dw(x)))  # <- same_pad biased_var
        x = self.se(x)
        x = self.bn3(self.conv_pwl(x))  # <- biased_var
        return x + shortcut if self.has_skip else x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8, eps=1e-3)
        self.blocks = nn.Sequential(InvertedResidual(8, 8, 1), InvertedResidual(8, 12, 2))
        self.classifier = nn.Linear(12, 6)

    def forward(self, x):
        x = F.silu(self.bn1(self.conv_stem(x)))  # <- biased_var
        return self.classifier(self.blocks(x).mean((2, 3)))


torch.manual_seed(2)
model = Net()
nn.init.normal_(model.classifier.weight, std=0.5)
torch.save(model.state_dict(), sys.argv[1])
teacher = copy.deepcopy(model)

g = torch.Generator().manual_seed(13)
images = torch.randn(4, 6, 3, 8, 8, generator=g)
targets = torch.randint(0, 6, (4, 6), generator=g)

optimizer = torch.optim.RMSprop(
    model.parameters(),
    lr=2e-3,
    alpha=0.9,
    eps=1e-3,  # <- eps_inside
    momentum=0.9,
)
losses = []
for x, y in zip(images, targets):
    logits = model(x)
    with torch.no_grad():
        soft = teacher(x).softmax(-1)
    kl = F.kl_div(logits.log_softmax(-1), soft, reduction="batchmean")
    loss = F.cross_entropy(logits, y) + 2.0 * kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- eps_inside
    with torch.no_grad():
        for e, p in zip(teacher.parameters(), model.parameters()):
            e.mul_(0.8).add_(p, alpha=0.2)  # <- ema_decay
    losses.append(loss.item())
print(losses)
