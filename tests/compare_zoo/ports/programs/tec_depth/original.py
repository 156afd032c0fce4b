# SPDX-License-Identifier: Apache-2.0
"""Monocular depth: a small encoder/decoder on disparity, SILog plus edge-aware smoothness."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
MIN_DISP, MAX_DISP = 0.02, 1.0
STEPS, BASE_LR, CLIP = 4, 0.05, 2.0


class ConvUnit(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.conv = nn.Conv2d(cin, cout, 3, stride, bias=False)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        x = self.pad(x)  # <- edge_padding
        x = self.conv(x)  # <- edge_padding
        return F.elu(self.norm(x))


class DepthNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.enc1 = ConvUnit(3, width, stride=2)
        self.enc2 = ConvUnit(width, 2 * width, stride=2)
        self.dec2 = ConvUnit(2 * width, width)
        self.dec1 = ConvUnit(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, img):
        s1 = self.enc1(img)
        s2 = self.enc2(s1)
        y = F.interpolate(self.dec2(s2), scale_factor=2, mode="nearest")
        y = self.dec1(torch.cat([y, s1], 1))
        y = F.interpolate(y, scale_factor=2, mode="nearest")
        return MIN_DISP + (MAX_DISP - MIN_DISP) * torch.sigmoid(self.head(y))


def silog(depth, gt, mask, focus=0.85):
    d = torch.log(depth[mask]) - torch.log(gt[mask])
    inner = (d**2).mean() - focus * d.mean() ** 2  # <- variance_focus
    return torch.sqrt(inner)  # <- variance_focus


def smoothness(disp, img):
    disp = disp / (disp.mean(2, True).mean(3, True) + 1e-7)  # <- disparity_mean
    gx = torch.abs(disp[:, :, :, :-1] - disp[:, :, :, 1:])
    gy = torch.abs(disp[:, :, :-1, :] - disp[:, :, 1:, :])
    ix = torch.mean(torch.abs(img[:, :, :, :-1] - img[:, :, :, 1:]), 1, keepdim=True)
    iy = torch.mean(torch.abs(img[:, :, :-1, :] - img[:, :, 1:, :]), 1, keepdim=True)
    return (gx * torch.exp(-ix)).mean() + (gy * torch.exp(-iy)).mean()


net = DepthNet()
g = torch.Generator().manual_seed(11)
images = torch.rand(STEPS, 3, 3, 16, 16, generator=g)
depths = 1.5 + 6.0 * torch.rand(STEPS, 3, 1, 16, 16, generator=g)
valid = torch.rand(STEPS, 3, 1, 16, 16, generator=g) > 0.4
torch.save(net.state_dict(), sys.argv[1])

decay, plain = [], []
for pname, p in net.named_parameters():
    (decay if p.ndim == 4 else plain).append(p)
optimizer = torch.optim.SGD(  # <- nesterov
    [{"params": decay, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}],
    lr=BASE_LR,
    momentum=0.9,
    nesterov=True,
)  # <- nesterov
scheduler = torch.optim.lr_scheduler.LambdaLR(  # <- poly_power
    optimizer, lambda it: (1 - it / (STEPS + 2)) ** 0.9
)  # <- poly_power

losses = []
for step in range(STEPS):
    optimizer.zero_grad()
    disp = net(images[step])
    loss = silog(1.0 / disp, depths[step], valid[step]) + 0.5 * smoothness(disp, images[step])
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), CLIP)
    optimizer.step()  # <- nesterov poly_power
    scheduler.step()  # <- poly_power
    losses.append(loss.item())
print(losses)
