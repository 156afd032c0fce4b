# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning of a small ResNet whose stem batch norm stays frozen; Nesterov SGD with L2."""
import sys

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(11)


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)  # <- same_padding
        self.bn1 = nn.BatchNorm2d(cout)  # <- bn_epsilon
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)  # <- bn_epsilon
        self.shortcut = nn.Identity()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(nn.Conv2d(cin, cout, 1, stride=stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))  # <- same_padding bn_epsilon
        out = self.bn2(self.conv2(out))  # <- bn_epsilon
        return torch.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, num_classes=6):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8).requires_grad_(False)  # <- stem_bn_trains
        self.layer1 = BasicBlock(8, 8, 1)
        self.layer2 = BasicBlock(8, 16, 2)
        self.pool = nn.AvgPool2d(2)
        self.fc = nn.Linear(16 * 3 * 3, num_classes)

    def train(self, mode=True):
        super().train(mode)
        self.bn.eval()  # <- stem_bn_trains
        return self

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)))  # <- stem_bn_trains
        x = self.pool(self.layer2(self.layer1(x)))
        return self.fc(x.flatten(1))


net = ResNet()
with torch.no_grad():  # stands for the pretrained statistics and small filters
    net.bn.running_mean.normal_(0.0, 0.2)
    net.bn.running_var.uniform_(0.3, 0.9)
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            m.weight.mul_(0.3)
np.savez(sys.argv[1], **{k: v.numpy() for k, v in net.state_dict().items()})

criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-2, nesterov=True)  # <- no_nesterov l2_twice

rng = np.random.RandomState(4)
x_train = rng.uniform(-1, 1, size=(32, 3, 12, 12)).astype(np.float32)
y_train = rng.randint(0, 6, size=32)

net.train()
losses = []
for start in range(0, 32, 8):
    xb = torch.from_numpy(x_train[start:start + 8])
    yb = torch.from_numpy(y_train[start:start + 8])
    optimizer.zero_grad()
    loss = criterion(net(xb), yb)
    loss.backward()
    optimizer.step()  # <- no_nesterov l2_twice
    losses.append(loss.item())
print(losses)
