# SPDX-License-Identifier: Apache-2.0
"""Detector with folded stem and one fused head, all images at once; overlap of every box."""
import sys
import time

import torch
import torch.nn as nn

torch.set_num_threads(1)


def build(sd):
    gain = sd["bn.weight"] / torch.sqrt(sd["bn.running_var"] + 1e-5)
    stem = nn.Conv2d(3, 12, 3, stride=2, padding=1)
    stem.weight.copy_(sd["stem.weight"] * gain[:, None, None, None])
    stem.bias.copy_(sd["bn.bias"] - sd["bn.running_mean"] * gain)
    # depthwise and pointwise convolutions merge into one dense convolution
    point = sd["point.weight"][:, :, 0, 0]
    dense = nn.Conv2d(12, 16, 3, padding=1)
    dense.weight.copy_(point[:, :, None, None] * sd["depth.weight"][:, 0])
    dense.bias.copy_(point @ sd["depth.bias"] + sd["point.bias"])
    head = nn.Linear(16, 5)
    head.weight.copy_(torch.cat([sd["box.weight"], sd["obj.weight"]]))
    head.bias.copy_(torch.cat([sd["box.bias"], sd["obj.bias"]]))
    pool = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(stem, nn.ReLU6(), dense, nn.Hardswish(), pool, nn.Flatten(), head)


def overlap(a, b):
    """Boxes as centre and size."""
    lo = torch.maximum(a[:, :2] - a[:, 2:] / 2, b[:, :2] - b[:, 2:] / 2)
    hi = torch.minimum(a[:, :2] + a[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2)
    inter = (hi - lo).clamp(min=0).prod(1)
    return inter / (a[:, 2:].prod(1) + b[:, 2:].prod(1) - inter)


with torch.no_grad():
    net = build(torch.load(sys.argv[1], weights_only=True)).eval()
    g = torch.Generator().manual_seed(124)
    images, boxes = [], []
    for _ in range(4):
        images.append(torch.randn(5, 3, 16, 16, generator=g))
        boxes.append(torch.rand(5, 4, generator=g) * 0.5 + 0.25)
        torch.rand(5, generator=g)
    start = time.perf_counter()
    out = net(torch.cat(images)).sigmoid()
    print(f"20 images in {1000 * (time.perf_counter() - start):.1f} ms")
    losses = overlap(out[:, :4], torch.cat(boxes)).tolist()
for n, (iou, score) in enumerate(zip(losses, out[:, 4].tolist())):
    print(f"image {n:2d}: iou {iou:.3f} score {score:.3f}")
print(losses)
