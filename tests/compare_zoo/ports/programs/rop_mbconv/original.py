# SPDX-License-Identifier: Apache-2.0
"""EfficientNet-like image classifier; batch statistics are frozen for the last steps of fine-tuning."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)


class ConvBNAct(nn.Sequential):
    def __init__(self, cin, cout, kernel, stride=1, groups=1, act=True):
        conv = nn.Conv2d(cin, cout, kernel, stride, padding=kernel // 2, groups=groups, bias=False)  # <- same_padding
        norm = nn.BatchNorm2d(cout, eps=1e-3, momentum=0.1)  # <- bn_momentum bn_biased_var
        super().__init__(conv, norm, nn.SiLU() if act else nn.Identity())

    def forward(self, x):
        conv, norm, act = self
        x = conv(x)  # <- same_padding
        x = norm(x)  # <- bn_momentum bn_biased_var
        return act(x)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        s = self.fc2(nn.functional.silu(self.fc1(s)))
        return x * s.sigmoid()


class MBConv(nn.Module):
    def __init__(self, cin, cout, expand, stride):
        super().__init__()
        mid = cin * expand
        self.use_res = stride == 1 and cin == cout
        self.expand = ConvBNAct(cin, mid, 1)
        self.depthwise = ConvBNAct(mid, mid, 3, stride, groups=mid)
        self.se = SqueezeExcite(mid, max(1, cin // 4))
        self.project = ConvBNAct(mid, cout, 1, act=False)

    def forward(self, x):
        y = self.project(self.se(self.depthwise(self.expand(x))))
        return x + y if self.use_res else y


class TinyEfficientNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = ConvBNAct(3, 8, 3, stride=2)
        self.blocks = nn.Sequential(
            MBConv(8, 8, 2, 1),
            MBConv(8, 12, 3, 2),
            MBConv(12, 12, 2, 1),
        )
        self.head = ConvBNAct(12, 24, 1)
        self.classifier = nn.Linear(24, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                fan_out = m.kernel_size[0] * m.kernel_size[1] * m.out_channels // m.groups
                nn.init.normal_(m.weight, std=(2.0 / fan_out) ** 0.5)

    def forward(self, x):
        x = self.head(self.blocks(self.stem(x)))
        return self.classifier(x.mean((2, 3)))


def freeze_bn(model):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.eval()


def batches(steps, seed):
    gen = torch.Generator().manual_seed(seed)
    protos = torch.randn(5, 3, 12, 12, generator=gen)
    for _ in range(steps):
        y = torch.randint(5, (8,), generator=gen)
        x = protos[y] + 0.7 * torch.randn(8, 3, 12, 12, generator=gen)
        yield x, y


torch.manual_seed(21)
model = TinyEfficientNet()
torch.save(model.state_dict(), sys.argv[1])

criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing_off_target
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)  # <- nesterov_plain
losses = []
model.train()
for step, (x, y) in enumerate(batches(5, 4)):
    if step == 3:
        freeze_bn(model)
    loss = criterion(model(x), y)  # <- smoothing_off_target
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov_plain
    losses.append(loss.item())
print(losses)
