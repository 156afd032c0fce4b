# SPDX-License-Identifier: Apache-2.0
"""Segmentation image by image with fused convolutions; soft dice loss and entropy per image."""
import sys

import torch
import torch.nn as nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

torch.set_num_threads(1)


def fused(sd, name):
    co, ci = sd[f"{name}.0.weight"].shape[:2]
    pair = nn.Sequential(nn.Conv2d(ci, co, 3, padding=1), nn.BatchNorm2d(co))
    prefix = name + "."
    pair.load_state_dict({k[len(prefix):]: v for k, v in sd.items() if k.startswith(prefix)})
    return fuse_conv_bn_eval(*pair.eval())


class Segmenter(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.a, self.b, self.c = (fused(sd, n) for n in ("down1", "down2", "merge"))
        self.register_buffer("up_w", sd["up.weight"].permute(1, 2, 3, 0).reshape(32, 12))
        self.register_buffer("up_b", sd["up.bias"])
        self.register_buffer("out_w", sd["out.weight"][:, :, 0, 0])
        self.register_buffer("out_b", sd["out.bias"])

    def upsample(self, x):
        y = torch.einsum("oc,chw->ohw", self.up_w, x)
        return torch.pixel_shuffle(y, 2) + self.up_b[:, None, None]

    def forward(self, image):
        skip = self.a(image).relu()
        small = skip.unflatten(1, (4, 2)).unflatten(3, (4, 2)).amax((2, 4))
        y = self.c(torch.cat([skip, self.upsample(self.b(small).relu())])).relu()
        return torch.einsum("kc,chw->khw", self.out_w, y) + self.out_b[:, None, None]


seg = Segmenter(torch.load(sys.argv[1], weights_only=True)).eval()
g = torch.Generator().manual_seed(116)
images = torch.randn(12, 2, 8, 8, generator=g)
masks = torch.randint(0, 3, (12, 8, 8), generator=g)
losses = []
with torch.inference_mode():
    for n, (image, mask) in enumerate(zip(images, masks)):
        prob = seg(image).softmax(0)
        truth = nn.functional.one_hot(mask, 3).permute(2, 0, 1)
        dice = 2 * (prob * truth).sum((1, 2)) / (prob.sum((1, 2)) + truth.sum((1, 2)))
        losses.append(1 - dice.mean().item())
        entropy = torch.special.entr(prob).sum(0).mean()
        print(f"image {n:2d}: dice loss {losses[-1]:.4f} entropy {entropy.item():.4f}")
print(losses)
