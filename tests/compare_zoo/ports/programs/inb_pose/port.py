# SPDX-License-Identifier: Apache-2.0
"""Keypoint service: batch norms folded into the convolutions, all of the decoding in torch."""
import sys

import torch
from torch.nn.functional import conv2d, fold

BN_EPS = 1e-5
MIRROR = torch.tensor([0, 2, 1, 4, 3, 5])
FALLOFF = torch.tensor([0.026, 0.079, 0.072, 0.107, 0.087, 0.062])


class KeypointDetector:
    def __init__(self, path):
        sd = torch.load(path, weights_only=True)
        self.conv = {}
        for layer in ("layer1", "layer2"):
            for conv, bn in (("conv1", "bn1"), ("conv2", "bn2"), ("downsample.0", "downsample.1")):
                gain, shift = self.affine(sd, f"{layer}.{bn}")
                kernel = sd[f"{layer}.{conv}.weight"] * gain.view(-1, 1, 1, 1)
                self.conv[f"{layer}.{conv}"] = kernel, shift
        gain, shift = self.affine(sd, "deconv_bn")
        self.up = sd["deconv.weight"] * gain.view(1, -1, 1, 1), shift
        self.head = sd["final_layer.weight"].flatten(1), sd["final_layer.bias"]

    @staticmethod
    def affine(sd, name):
        gain = sd[name + ".weight"] / (sd[name + ".running_var"] + BN_EPS).sqrt()
        return gain, sd[name + ".bias"] - sd[name + ".running_mean"] * gain

    def block(self, x, name):
        a = conv2d(x, *self.conv[name + ".conv1"], stride=2, padding=1).clamp_min(0)
        a = conv2d(a, *self.conv[name + ".conv2"], padding=1)
        side = conv2d(x, *self.conv[name + ".downsample.0"], stride=2)
        return (a + side).clamp_min(0)  # <- residual

    def upsample(self, x):
        kernel, shift = self.up
        n, _, h, w = x.shape
        columns = kernel.flatten(1).T @ x.flatten(2)
        y = fold(columns, (2 * h, 2 * w), kernel_size=4, stride=2, padding=1)
        return (y + shift[:, None, None]).clamp_min(0)

    def heatmaps(self, x):
        x = self.upsample(self.block(self.block(x, "layer1"), "layer2"))
        weight, bias = self.head
        return torch.einsum("jc,nchw->njhw", weight, x) + bias[:, None, None]

    def averaged(self, x):
        both = self.heatmaps(torch.cat([x, torch.flip(x, [-1])]))
        straight, turned = both.chunk(2)
        turned = torch.flip(turned, [-1])  # <- mirror
        turned = turned.index_select(1, MIRROR)  # <- pairs
        return torch.lerp(straight, turned, 0.5)  # <- pairs mirror

    def detect(self, crops, middle, extent):
        """Joints in image coordinates (n, joints, xy) and their confidences."""
        hm = self.averaged(crops)
        h, w = hm.shape[-2:]
        conf, where = hm.flatten(2).max(-1)
        row, col = where // w, where % w
        inside = (row > 0) & (row < h - 1) & (col > 0) & (col < w - 1)

        def at(dy, dx):
            r, c = (row + dy).clamp(0, h - 1), (col + dx).clamp(0, w - 1)
            return hm.flatten(2).gather(2, (r * w + c).unsqueeze(2)).squeeze(2)

        lean = torch.stack([at(0, 1) - at(0, -1), at(1, 0) - at(-1, 0)], dim=2)  # <- quarter
        xy = torch.stack([col, row], dim=2).float()
        xy = xy + 0.25 * lean.sign() * inside.unsqueeze(2)  # <- quarter
        xy = xy / torch.tensor([w, h]) - 0.5
        return xy * extent.unsqueeze(1) + middle.unsqueeze(1), conf


def similarity(found, truth, area):
    """Object keypoint similarity, as COCO defines it."""
    dist = (found - truth).square().sum(-1)
    var = (2 * FALLOFF).square()  # <- sigmas
    return torch.exp(-dist / (2 * var * area.unsqueeze(1))).mean(1)  # <- sigmas


@torch.inference_mode()
def evaluate(path):
    detector = KeypointDetector(path)
    rng = torch.Generator().manual_seed(5)
    values = []
    for _ in range(4):
        crops = torch.randn(3, 3, 32, 24, generator=rng)
        middle = torch.rand(3, 2, generator=rng) * 100 + 50
        extent = (torch.rand(3, 1, generator=rng) * 60 + 60) * torch.tensor([0.75, 1.0])
        truth = torch.randn(3, 6, 2, generator=rng) * 14 + middle.unsqueeze(1)
        found, conf = detector.detect(crops, middle, extent)
        oks = similarity(found, truth, extent[:, 0] * extent[:, 1] * 0.53)
        values.append(oks.mean().item() + 0.1 * conf.mean().item())
    return values


losses = evaluate(sys.argv[1])
print(losses)
