# SPDX-License-Identifier: Apache-2.0
"""One-stage detector without torchvision: folded frozen norms, batched padded matching, losses from logsigmoids."""
import sys

import torch
from torch import nn
from torch.nn.functional import conv2d, interpolate, logsigmoid, pad, relu

torch.set_num_threads(1)

K, SIDE, MAX_GT = 3, 32, 3


class FrozenConv(nn.Module):
    """Convolution whose norm has been folded to one scale and one shift per channel."""

    def __init__(self, sd, prefix):
        super().__init__()
        self.kernel = nn.Parameter(sd[prefix + ".0.weight"].clone())
        stats = {n: sd[f"{prefix}.1.{n}"] for n in ("weight", "bias", "running_mean", "running_var")}
        scale = stats["weight"] / (stats["running_var"] + 1e-5).sqrt()
        self.register_buffer("scale", scale[:, None, None])
        self.register_buffer("shift", (stats["bias"] - stats["running_mean"] * scale)[:, None, None])

    def forward(self, x):
        return relu(conv2d(x, self.kernel, stride=2, padding=1) * self.scale + self.shift)


def plain_conv(sd, *prefixes):
    w = torch.cat([sd[p + ".weight"] for p in prefixes])
    conv = nn.Conv2d(w.shape[1], w.shape[0], w.shape[-1], padding=w.shape[-1] // 2)
    conv.load_state_dict({"weight": w, "bias": torch.cat([sd[p + ".bias"] for p in prefixes])})
    return conv


class Net(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.bottom = nn.Sequential(FrozenConv(sd, "stem"), FrozenConv(sd, "c2"))
        self.top = FrozenConv(sd, "c3")
        self.lateral = nn.ModuleList([plain_conv(sd, f"fpn.inner_blocks.{i}.0") for i in (0, 1)])
        self.smooth = nn.ModuleList([plain_conv(sd, f"fpn.layer_blocks.{i}.0") for i in (0, 1)])
        self.tower = plain_conv(sd, "tower")
        self.head = plain_conv(sd, "cls_logits", "bbox_reg", "quality")

    def forward(self, x):
        fine = self.bottom(x)
        coarse = self.lateral[1](self.top(fine))
        fine = self.lateral[0](fine) + interpolate(coarse, scale_factor=2, mode="nearest")  # <- bilinear_pyramid
        maps = [self.smooth[0](fine), self.smooth[1](coarse)]  # <- bilinear_pyramid
        rows = [self.head(relu(self.tower(m))).permute(0, 2, 3, 1).flatten(1, 2) for m in maps]
        rows = torch.cat(rows, 1)
        return rows[..., :K], rows[..., K : K + 4], rows[..., -1]


def anchor_grid():
    out = []
    for s in (4, 8):
        n = SIDE // s
        k = torch.arange(n * n)
        centre = torch.stack([k % n, torch.div(k, n, rounding_mode="floor")], 1) * s + s / 2
        out.append(torch.cat([centre, torch.full((n * n, 2), 3.0 * s)], 1))
    return torch.cat(out)


def corners(b):
    return torch.cat([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1)


def area(b):
    return (b[..., 2:] - b[..., :2]).clamp(min=0).prod(-1)


def overlap(a, b):
    lo, hi = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    inter = (hi - lo).clamp(min=0).prod(-1)
    return inter, area(a) + area(b) - inter


ANCHORS = anchor_grid()


def assign(boxes, real):
    """boxes (B, G, 4) padded; returns index of the box, foreground mask and ignore mask, each (B, A)."""
    inter, union = overlap(boxes[:, :, None], corners(ANCHORS)[None, None])
    iou = torch.where(real[:, :, None], inter / union.clamp(min=1e-9), -1.0)
    best, index = iou.max(1)
    favourite = ((iou == iou.amax(2, keepdim=True)) & real[:, :, None]).any(1)
    fg = (best >= 0.5) | favourite
    return index, fg, ~fg & (best >= 0.3)  # <- between_is_background


def criterion(output, boxes, labels, real):
    logits, delta, quality = output
    index, fg, ignored = assign(boxes, real)  # <- between_is_background
    y = nn.functional.one_hot(labels.gather(1, index), K) * fg[..., None]
    z = torch.where(y == 1, logits, -logits)
    alpha = torch.where(y == 1, 0.25, 0.75)  # <- alpha_swapped
    focal = -alpha * torch.sigmoid(-z).square() * logsigmoid(z)  # <- alpha_swapped
    focal = focal.masked_fill(ignored[..., None], 0.0).sum()  # <- between_is_background

    anchors = ANCHORS.expand(len(boxes), -1, -1)[fg]
    d = delta[fg]
    pred = corners(torch.cat([anchors[:, :2] + d[:, :2] * anchors[:, 2:], anchors[:, 2:] * d[:, 2:].exp()], 1))
    gt = boxes.gather(1, index[..., None].expand(-1, -1, 4))[fg]
    inter, union = overlap(pred, gt)
    hull = area(torch.cat([torch.minimum(pred[:, :2], gt[:, :2]), torch.maximum(pred[:, 2:], gt[:, 2:])], 1))
    iou = inter / union
    giou = iou - (hull - union) / hull
    q, soft = quality[fg], iou.detach()  # <- quality_target_attached
    bce = -(soft * logsigmoid(q) + (1 - soft) * logsigmoid(-q))  # <- quality_target_attached
    return (focal + (1 - giou).sum() + bce.sum()) / max(fg.sum().item(), 1)


def batch(rng, n=3):
    images = torch.rand(n, 3, SIDE, SIDE, generator=rng)
    boxes, labels, real = [], [], []
    for count in [2 + i % 2 for i in range(n)]:
        mid = 8 + 16 * torch.rand(count, 2, generator=rng)
        half = 4 + 6 * torch.rand(count, 2, generator=rng)
        extra = MAX_GT - count
        boxes.append(pad(torch.cat([mid - half, mid + half], 1).clamp(0, SIDE), (0, 0, 0, extra)))
        labels.append(pad(torch.randint(0, K, (count,), generator=rng), (0, extra)))
        real.append(torch.arange(MAX_GT) < count)
    return images, torch.stack(boxes), torch.stack(labels), torch.stack(real)


def sgd(module, loss, buffers, base=0.01, momentum=0.9, decay=1e-3):
    names, params = zip(*module.named_parameters())
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        for name, p, g in zip(names, params, grads):
            is_bias = p.ndim == 1
            lr = base * 2 if is_bias else base  # <- bias_same_rate
            if not is_bias:
                g = g + decay * p
            buffers[name] = momentum * buffers.get(name, 0.0) + g
            p -= lr * buffers[name]  # <- bias_same_rate


net = Net(torch.load(sys.argv[1]))
rng, buffers, losses = torch.Generator().manual_seed(64), {}, []
for _ in range(5):
    images, boxes, labels, real = batch(rng)
    loss = criterion(net(images), boxes, labels, real)
    losses.append(loss.item())
    sgd(net, loss, buffers)
print(losses)
