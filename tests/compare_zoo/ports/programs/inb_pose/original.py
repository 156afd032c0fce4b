# SPDX-License-Identifier: Apache-2.0
"""Top-down pose estimation: heatmaps with flip test, quarter-pixel refinement, OKS."""
import sys

import numpy as np
import torch
import torch.nn as nn

FLIP_PAIRS = [(1, 2), (3, 4)]
SIGMAS = np.array([0.026, 0.079, 0.072, 0.107, 0.087, 0.062], dtype=np.float32)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes, momentum=0.1)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes, momentum=0.1)
        self.downsample = nn.Sequential(
            nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes, momentum=0.1)
        )

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + self.downsample(x))  # <- residual


class PoseResNet(nn.Module):
    def __init__(self, num_joints=6):
        super().__init__()
        self.layer1 = BasicBlock(3, 12, 2)
        self.layer2 = BasicBlock(12, 16, 2)
        self.deconv = nn.ConvTranspose2d(16, 12, 4, 2, 1, bias=False)
        self.deconv_bn = nn.BatchNorm2d(12)
        self.final_layer = nn.Conv2d(12, num_joints, 1)

    def forward(self, x):
        x = self.layer2(self.layer1(x))
        x = self.deconv_bn(self.deconv(x)).relu()
        return self.final_layer(x)


def flip_test(model, images):
    heat = model(images)
    flipped = model(images.flip(3)).flip(3)  # <- pairs mirror
    order = list(range(flipped.size(1)))
    for a, b in FLIP_PAIRS:
        order[a], order[b] = b, a  # <- pairs
    return (heat + flipped[:, order]) * 0.5  # <- pairs mirror


def get_max_preds(batch_heatmaps):
    n, k, _, width = batch_heatmaps.shape
    flat = batch_heatmaps.reshape(n, k, -1)
    idx, maxvals = flat.argmax(2), flat.max(2)
    return np.stack([idx % width, idx // width], axis=-1).astype(np.float32), maxvals


def get_final_preds(hm, centers, scales):
    coords, maxvals = get_max_preds(hm)
    height, width = hm.shape[2:]
    for n in range(coords.shape[0]):
        for p in range(coords.shape[1]):
            px, py = int(coords[n, p, 0]), int(coords[n, p, 1])
            if 0 < px < width - 1 and 0 < py < height - 1:
                diff = np.array([  # <- quarter
                    hm[n, p, py, px + 1] - hm[n, p, py, px - 1],  # <- quarter
                    hm[n, p, py + 1, px] - hm[n, p, py - 1, px],  # <- quarter
                ])
                coords[n, p] += np.sign(diff) * 0.25  # <- quarter
    size = np.array([width, height], dtype=np.float32)
    return (coords / size - 0.5) * scales[:, None] + centers[:, None], maxvals


def oks(pred, gt, area):
    d2 = ((pred - gt) ** 2).sum(-1)
    e = d2 / (2 * SIGMAS) ** 2 / area[:, None] / 2  # <- sigmas
    return np.exp(-e).mean(1)  # <- sigmas


torch.manual_seed(0)
net = PoseResNet()
for m in net.modules():
    if isinstance(m, nn.BatchNorm2d):
        nn.init.uniform_(m.weight, 0.6, 1.4)
        nn.init.normal_(m.bias, 0, 0.3)
        nn.init.normal_(m.running_mean, 0, 0.2)
        nn.init.uniform_(m.running_var, 0.02, 0.6)
torch.save(net.state_dict(), sys.argv[1])

net.eval()
losses = []
gen = torch.Generator().manual_seed(5)
with torch.no_grad():
    for _ in range(4):
        images = torch.randn(3, 3, 32, 24, generator=gen)
        centers = (torch.rand(3, 2, generator=gen) * 100 + 50).numpy()
        scales = (torch.rand(3, 1, generator=gen) * 60 + 60).numpy() * np.float32([0.75, 1.0])
        gt = torch.randn(3, 6, 2, generator=gen).numpy() * 14 + centers[:, None]
        preds, conf = get_final_preds(flip_test(net, images).numpy(), centers, scales)
        score = oks(preds, gt, scales.prod(1) * 0.53)
        losses.append(float(score.mean() + 0.1 * conf.mean()))
print(losses)
