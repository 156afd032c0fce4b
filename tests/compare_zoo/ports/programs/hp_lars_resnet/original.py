# SPDX-License-Identifier: Apache-2.0
"""A small ResNet with batch norm, trained with LARS and polynomial decay."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + identity)


class ResNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(BasicBlock(8, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2))
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(x))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.02, eps=1e-8, adapt=True):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust, eps=eps,
                                      adapt=adapt))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                d = p.grad
                if g["adapt"]:
                    wn, gn = p.norm(), d.norm()
                    ratio = 1.0
                    if wn > 0 and gn > 0:
                        ratio = g["trust"] * wn / (gn + g["weight_decay"] * wn + g["eps"])
                    d = d.add(p, alpha=g["weight_decay"]) * ratio
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                state["mu"].mul_(g["momentum"]).add_(d)
                p.add_(state["mu"], alpha=-g["lr"])


def main():
    torch.manual_seed(51)
    model = ResNet()
    torch.save(model.state_dict(), sys.argv[1])
    big = [p for p in model.parameters() if p.ndim > 1]
    small = [p for p in model.parameters() if p.ndim == 1]
    opt = LARS([{"params": big, "weight_decay": 1e-4}, {"params": small, "adapt": False}], lr=1.0)
    gen = torch.Generator().manual_seed(52)
    data = torch.randn(48, 3, 8, 8, generator=gen)
    target = torch.randint(0, 6, (48,), generator=gen)
    out, total, held = [], 5, []
    for step in range(total):
        pick = torch.randperm(48, generator=gen)[:16]
        for g in opt.param_groups:
            g["lr"] = 0.5 * (1 - step / total) ** 2 if g["adapt"] else 0.05 * (1 - step / total) ** 2
        model.train()
        loss = F.cross_entropy(model(data[pick]), target[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    model.eval()
    with torch.no_grad():
        held.append(F.cross_entropy(model(data), target).item())
    return out + held


losses = main()
print(losses)
