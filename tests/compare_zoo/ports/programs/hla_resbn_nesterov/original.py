# SPDX-License-Identifier: Apache-2.0
"""Small residual CNN with batch norm on synthetic 12x12 RGB tiles; SGD with Nesterov momentum."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)  # <- batch_var
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)  # <- batch_var
        out = self.bn2(self.conv2(out))  # <- batch_var
        out += identity  # <- relu_order
        return F.relu(out, inplace=True)  # <- relu_order


class ResNet(nn.Module):
    def __init__(self, classes=5, width=6):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.layer1 = BasicBlock(width, width)
        self.layer2 = BasicBlock(width, 2 * width, 2)
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))  # <- batch_var
        x = self.layer2(self.layer1(x))
        return self.fc(x.mean((2, 3)))


def batches(n=4, bs=16):
    g = torch.Generator().manual_seed(11)
    for _ in range(n):
        y = torch.randint(0, 5, (bs,), generator=g)
        x = torch.randn(bs, 3, 12, 12, generator=g) + y.view(-1, 1, 1, 1) * 0.3
        yield x, y


torch.manual_seed(0)
model = ResNet()
torch.save(model.state_dict(), sys.argv[1])

decay, no_decay = [], []
for p in model.parameters():
    (decay if p.ndim > 1 else no_decay).append(p)
optimizer = torch.optim.SGD(  # <- look_ahead
    [{"params": decay, "weight_decay": 5e-3}, {"params": no_decay, "weight_decay": 0.0}],
    lr=0.05, momentum=0.9, nesterov=True)  # <- look_ahead
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)  # <- rate_step
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smooth_spread

losses = []
model.train()
for step, (x, y) in enumerate(batches()):
    optimizer.zero_grad(set_to_none=True)
    logits = model(x)
    loss = criterion(logits, y)  # <- smooth_spread
    loss.backward()
    optimizer.step()  # <- look_ahead rate_step
    scheduler.step()  # <- rate_step
    losses.append(loss.item())
    print(f"step {step} loss {loss.item():.4f} acc {(logits.argmax(1) == y).float().mean():.3f}")

model.eval()
with torch.no_grad():
    x, y = next(batches(1))
    print("eval loss", F.cross_entropy(model(x), y).item())
print(losses)
