# SPDX-License-Identifier: Apache-2.0
"""A tiny EfficientNet (squeeze-excitation, depthwise convs) with mixup, smoothing and TensorFlow's RMSprop."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(41)

CLASSES, BATCH, SIDE, STEPS, FREEZE_FROM = 6, 8, 12, 5, 3
SMOOTHING, BN_EPS, BN_MOMENTUM = 0.1, 1e-3, 0.1


class RMSpropTF(torch.optim.Optimizer):
    """Epsilon under the root, mean square from one, the rate inside the momentum buffer."""

    def __init__(self, params, lr, alpha=0.9, eps=1e-3, momentum=0.9):
        super().__init__(params, dict(lr=lr, alpha=alpha, eps=eps, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["square_avg"], state["buf"] = torch.ones_like(p), torch.zeros_like(p)  # <- rms_start
                square_avg, buf = state["square_avg"], state["buf"]
                square_avg.add_(p.grad.pow(2) - square_avg, alpha=1 - group["alpha"])
                avg = square_avg.add(group["eps"]).sqrt_()
                buf.mul_(group["momentum"]).addcdiv_(p.grad, avg, value=group["lr"])
                p.sub_(buf)


def conv_bn(cin, cout, kernel, stride=1, groups=1):
    return [nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),  # <- same_pad
            nn.BatchNorm2d(cout, eps=BN_EPS, momentum=BN_MOMENTUM)]  # <- bn_momentum


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce = nn.Conv2d(channels, reduced, 1)
        self.expand = nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(s))))


class MBConv(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        mid = 2 * cin
        self.layers = nn.Sequential(
            *conv_bn(cin, mid, 1), nn.SiLU(),
            *conv_bn(mid, mid, 3, stride, groups=mid), nn.SiLU(),
            SqueezeExcite(mid, cin // 4), *conv_bn(mid, cout, 1),
        )
        self.skip = stride == 1 and cin == cout

    def forward(self, x):
        y = self.layers(x)  # <- same_pad bn_momentum
        return x + y if self.skip else y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(*conv_bn(3, 8, 3), nn.SiLU())
        self.blocks = nn.Sequential(MBConv(8, 8, 1), MBConv(8, 12, 2))
        self.top = nn.Sequential(*conv_bn(12, 24, 1), nn.SiLU())
        self.fc = nn.Linear(24, CLASSES)

    def forward(self, x):
        return self.fc(self.top(self.blocks(self.stem(x))).mean((2, 3)))  # <- bn_momentum

    def freeze_bn(self):
        for m in self.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.eval()


def mixed_batches():
    gen = torch.Generator().manual_seed(6)
    prototypes = torch.randn(CLASSES, 3, SIDE, SIDE, generator=gen)
    for _ in range(STEPS):
        y = torch.randint(0, CLASSES, (BATCH,), generator=gen)
        x = prototypes[y] + 0.5 * torch.randn(BATCH, 3, SIDE, SIDE, generator=gen)
        lam = 0.6 + 0.4 * torch.rand((), generator=gen)
        perm = torch.randperm(BATCH, generator=gen)
        yield lam * x + (1 - lam) * x[perm], y, y[perm], lam


net = Net()
torch.save(net.state_dict(), sys.argv[1])
optimizer = RMSpropTF(net.parameters(), lr=0.05)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
criterion = nn.CrossEntropyLoss(label_smoothing=SMOOTHING)  # <- smooth_k

losses = []
for step, (x, y_a, y_b, lam) in enumerate(mixed_batches()):
    if step == FREEZE_FROM:
        net.freeze_bn()
    out = net(x)
    loss = lam * criterion(out, y_a) + (1 - lam) * criterion(out, y_b)  # <- mixup_pair smooth_k
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    losses.append(loss.item())
print(losses)
