# SPDX-License-Identifier: Apache-2.0
"""Small residual CNN with weight-standardised convolutions and group norm, Nesterov SGD."""
import sys
import torch
from torch import nn
import torch.nn.functional as F


class WSConv2d(nn.Conv2d):
    """Conv2d whose filters are standardised over fan-in, then rescaled by a learned gain."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.gain = nn.Parameter(torch.ones(self.out_channels, 1, 1, 1))

    def forward(self, x):
        w = self.weight
        var, mean = torch.var_mean(w, dim=(1, 2, 3), keepdim=True)  # <- unbiased
        fan = w[0].numel()  # <- unbiased
        w = (w - mean) * torch.rsqrt(torch.clamp(var * fan, min=1e-4)) * self.gain  # <- unbiased
        return F.conv2d(x, w, self.bias, self.stride, self.padding)  # <- padding


class Net(nn.Module):
    def __init__(self, c=8, classes=5):
        super().__init__()
        self.stem = WSConv2d(2, c, 3, padding=1, bias=False)  # <- padding
        self.gn0 = nn.GroupNorm(2, c)
        self.conv1 = WSConv2d(c, c, 3, padding=1)  # <- padding
        self.gn1 = nn.GroupNorm(4, c)
        self.conv2 = WSConv2d(c, 12, 3, stride=2, padding=1)  # <- padding
        self.gn2 = nn.GroupNorm(3, 12)
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        x = F.relu(self.gn0(self.stem(x)))
        x = x + F.relu(self.gn1(self.conv1(x)))
        x = F.relu(self.gn2(self.conv2(x)))
        return self.head(x.mean(dim=(2, 3)))


torch.manual_seed(0)
net = Net()
torch.save(net.state_dict(), sys.argv[1])
decay = [p for n, p in net.named_parameters() if p.ndim > 1 and "gain" not in n]
plain = [p for n, p in net.named_parameters() if p.ndim == 1 or "gain" in n]
opt = torch.optim.SGD([{"params": decay, "weight_decay": 5e-3}, {"params": plain}],  # <- nesterov
                      lr=0.1, momentum=0.8, nesterov=True)  # <- nesterov
sched = torch.optim.lr_scheduler.MultiStepLR(opt, [2, 4], gamma=0.3)  # <- milestones
g = torch.Generator().manual_seed(31)
losses = []
for step in range(5):
    x = torch.randn(12, 2, 8, 8, generator=g)
    y = torch.randint(0, 5, (12,), generator=g)
    loss = F.cross_entropy(net(x), y)  # <- micro_mean
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- nesterov milestones
    sched.step()  # <- milestones
    losses.append(loss.item())
print(losses)
