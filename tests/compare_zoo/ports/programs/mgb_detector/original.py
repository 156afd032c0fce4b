# SPDX-License-Identifier: Apache-2.0
"""One-stage detector: small FPN, shared head, focal loss and smooth L1 on given assignments."""
import math
import sys

import torch
from torch import nn
import torch.nn.functional as F

ANCHORS, CLASSES, STEPS = 2, 3, 4


class FrozenNorm(nn.Module):
    def __init__(self, c, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.rand(c) + 0.5)
        self.register_buffer("bias", torch.randn(c) * 0.2)
        self.register_buffer("mean", torch.randn(c) * 0.3)
        self.register_buffer("var", torch.rand(c) + 0.2)

    def forward(self, x):
        scale = self.weight * (self.var + self.eps).rsqrt()
        shift = self.bias - self.mean * scale
        return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)


def stage(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False), FrozenNorm(cout), nn.ReLU()
    )


class Detector(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.c1, self.c2, self.c3 = stage(3, 8), stage(8, 12), stage(12, 16)
        self.lateral2, self.lateral3 = nn.Conv2d(12, width, 1), nn.Conv2d(16, width, 1)
        self.smooth2 = nn.Conv2d(width, width, 3, padding=1)
        self.smooth3 = nn.Conv2d(width, width, 3, padding=1)
        self.tower = nn.Conv2d(width, width, 3, padding=1)
        self.cls = nn.Conv2d(width, ANCHORS * CLASSES, 3, padding=1)
        self.box = nn.Conv2d(width, ANCHORS * 4, 3, padding=1)
        nn.init.constant_(self.cls.bias, -math.log((1 - 0.05) / 0.05))

    def forward(self, images):
        f2 = self.c2(self.c1(images))
        f3 = self.c3(f2)
        top = self.lateral3(f3)
        merged = self.lateral2(f2) + F.interpolate(top, scale_factor=2, mode="nearest")  # <- merge
        scores, deltas = [], []
        for level in (self.smooth2(merged), self.smooth3(top)):
            h = F.relu(self.tower(level))
            for out, size, conv in ((scores, CLASSES, self.cls), (deltas, 4, self.box)):
                y = conv(h)
                n, _, rows, cols = y.shape
                y = y.view(n, ANCHORS, size, rows, cols).permute(0, 3, 4, 1, 2)  # <- anchor_order
                out.append(y.reshape(n, -1, size))  # <- anchor_order
        return torch.cat(scores, 1), torch.cat(deltas, 1)


def focal(logits, targets, alpha=0.25, gamma=2.0):  # <- class_weight
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    weight = alpha * targets + (1 - alpha) * (1 - targets)  # <- class_weight
    return (weight * (1 - p_t) ** gamma * ce).sum()  # <- class_weight


torch.manual_seed(0)
model = Detector()
torch.save(model.state_dict(), sys.argv[1])
biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
weights = [p for n, p in model.named_parameters() if not n.endswith("bias")]
optimizer = torch.optim.SGD(
    [{"params": weights, "lr": 0.05}, {"params": biases, "lr": 0.1}], momentum=0.9  # <- bias_rate
)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=3)
gen = torch.Generator().manual_seed(8)
normalizer = 100.0  # <- normalizer
losses = []
for _ in range(STEPS):
    images = torch.randn(2, 3, 32, 32, generator=gen)
    # class of the anchor: -1 is ignored, CLASSES is background
    assigned = torch.randint(-1, 12, (2, 160), generator=gen).clamp(max=CLASSES)
    boxes = torch.randn(2, 160, 4, generator=gen)
    scores, deltas = model(images)
    positive = (assigned >= 0) & (assigned < CLASSES)
    normalizer = 0.9 * normalizer + 0.1 * max(int(positive.sum()), 1)  # <- normalizer
    valid = assigned >= 0
    onehot = F.one_hot(assigned[valid], CLASSES + 1)[:, :CLASSES].float()
    loss_cls = focal(scores[valid], onehot)  # <- class_weight
    loss_box = F.smooth_l1_loss(deltas[positive], boxes[positive], beta=1 / 9, reduction="sum")
    loss = (loss_cls + loss_box) / normalizer  # <- normalizer
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- bias_rate
    warmup.step()
    losses.append(loss.item())
print(losses)
