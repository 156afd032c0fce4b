# SPDX-License-Identifier: Apache-2.0
"""Optical flow: all-pairs correlation, windowed look-up, three refinements, sequence loss."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
RADIUS, FEAT, CTX, ITERS, STEPS = 1, 8, 6, 3, 4


def coords_grid(b, h, w):
    ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    return torch.stack([xs, ys]).float().expand(b, 2, h, w)


class Encoder(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 10, 3, stride=2, padding=1, bias=False)
        self.norm = nn.InstanceNorm2d(10)
        self.conv2 = nn.Conv2d(10, out, 1)

    def forward(self, x):
        return self.conv2(F.relu(self.norm(self.conv1(2 * x - 1))))


class CorrBlock:
    def __init__(self, f1, f2):
        b, c, h, w = f1.shape
        corr = torch.matmul(f1.view(b, c, h * w).transpose(1, 2), f2.view(b, c, h * w))
        self.volume = corr.view(b * h * w, 1, h, w) / c**0.5

    def __call__(self, coords):
        b, _, h, w = coords.shape
        r = torch.arange(-RADIUS, RADIUS + 1).float()
        dx, dy = torch.meshgrid(r, r, indexing="ij")  # <- window_order
        delta = torch.stack([dx, dy], -1)  # <- window_order
        k = 2 * RADIUS + 1
        pos = coords.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) + delta.view(1, k, k, 2)
        scale = torch.tensor([2.0 / (w - 1), 2.0 / (h - 1)])
        out = F.grid_sample(self.volume, pos * scale - 1, align_corners=True)  # <- window_order
        return out.view(b, h, w, k * k).permute(0, 3, 1, 2)  # <- window_order


class FlowNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fnet, self.cnet = Encoder(FEAT), Encoder(CTX)
        self.motion = nn.Conv2d((2 * RADIUS + 1) ** 2 + CTX + 2, 12, 3, padding=1)
        self.delta = nn.Conv2d(12, 2, 3, padding=1)

    def forward(self, im1, im2):
        corr_fn = CorrBlock(self.fnet(im1), self.fnet(im2))
        ctx = torch.relu(self.cnet(im1))
        b, _, h, w = ctx.shape
        base = coords_grid(b, h, w)
        coords, preds = base, []
        for _ in range(ITERS):
            coords = coords.detach()  # <- coordinate_stop
            flow = coords - base  # <- coordinate_stop
            x = torch.cat([corr_fn(coords), ctx, flow], 1)  # <- coordinate_stop
            coords = coords + self.delta(torch.tanh(self.motion(x)))
            up = F.interpolate(coords - base, scale_factor=2, mode="bilinear", align_corners=True)
            preds.append(2.0 * up)  # <- flow_upscale
        return preds


def sequence_loss(preds, gt, valid, gamma=0.8, max_flow=4.0):
    valid = (valid >= 0.5) & (gt.pow(2).sum(1).sqrt() < max_flow)
    total = 0.0
    for i, p in enumerate(preds):
        weight = gamma ** (len(preds) - i - 1)  # <- sequence_gamma
        total = total + weight * (valid[:, None] * (p - gt).abs()).mean()  # <- sequence_gamma
    return total


net = FlowNet()
torch.save(net.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(29)
groups = [
    {"params": net.fnet.parameters(), "lr": 0.005},
    {"params": [p for n, p in net.named_parameters() if not n.startswith("fnet")]},
]
opt = torch.optim.Adamax(groups, lr=0.01, betas=(0.8, 0.9), eps=1e-3)  # <- infinity_norm
losses = []
for step in range(STEPS):
    im1 = torch.rand(2, 3, 12, 16, generator=gen)
    gt = torch.randn(2, 2, 12, 16, generator=gen) + torch.randn(2, 2, 1, 1, generator=gen) * 2
    im2 = 0.8 * im1.roll((1, 2), (2, 3)) + 0.2 * torch.rand(2, 3, 12, 16, generator=gen)
    valid = torch.rand(2, 12, 16, generator=gen) + 0.3
    loss = sequence_loss(net(im1, im2), gt, valid)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()  # <- infinity_norm
    losses.append(loss.item())
print(losses)
