# SPDX-License-Identifier: Apache-2.0
"""The detector in the manner of Keras: channels last, kernels [h, w, in, out], layers with call,
all levels' locations side by side and all images' targets at once, explicit gradients.
"""

import sys

import torch
import torch.nn.functional as F

K, C, SIDE = 4, 12, 32
STRIDES = (4, 8)


class Conv2D:
    def __init__(self, kernel, bias=None, strides=1):
        self.kernel = kernel.permute(2, 3, 1, 0).clone().requires_grad_()
        self.bias = None if bias is None else bias.clone().requires_grad_()
        self.strides = strides

    def __call__(self, x):
        """Patches times kernel; "same" padding for odd kernels."""
        h, w = self.kernel.shape[:2]
        pad = h // 2 if h % 2 else 0
        x = F.pad(x, (0, 0, pad, pad, pad, pad))
        patches = x.unfold(1, h, self.strides).unfold(2, w, self.strides)
        y = torch.einsum("byxchw,hwcd->byxd", patches, self.kernel)
        return y if self.bias is None else y + self.bias

    def variables(self):
        return [v for v in (self.kernel, self.bias) if v is not None]


class GroupNormalization:
    def __init__(self, gamma, beta, groups=3):
        self.gamma, self.beta = (t.clone().requires_grad_() for t in (gamma, beta))
        self.groups = groups

    def __call__(self, x):
        grouped = x.unflatten(3, (self.groups, -1))  # <- grouped
        axes = (1, 2, 4)  # <- grouped
        mean = grouped.mean(axes, keepdim=True)  # <- grouped
        variance = (grouped - mean).square().mean(axes, keepdim=True)  # <- grouped
        y = (grouped - mean) / torch.sqrt(variance + 1e-5)
        return y.reshape(x.shape) * self.gamma + self.beta

    def variables(self):
        return [self.gamma, self.beta]


class Detector:
    def __init__(self, path):
        old = torch.load(path)
        strides = {"stem": 4, "down": 2}
        self.layers = {}
        for name in ("stem", "down", "lateral", "cls_logits", "bbox_pred", "ctrness"):
            args = (old[f"{name}.weight"], old[f"{name}.bias"], strides.get(name, 1))
            self.layers[name] = Conv2D(*args)
        for name in ("cls_tower", "bbox_tower"):
            self.layers[name] = Conv2D(old[f"{name}.0.weight"])
            norm = GroupNormalization(old[f"{name}.1.weight"], old[f"{name}.1.bias"])
            self.layers[f"{name}_norm"] = norm
        scales = [old[f"scales.{i}.scale"] for i in range(2)]
        self.scales = torch.cat(scales).requires_grad_()
        self.variables = [v for layer in self.layers.values() for v in layer.variables()]
        self.variables.append(self.scales)

    def __call__(self, images):
        """Class logits, distances and centerness of all locations, [batch, locations, ...]."""
        do = self.layers
        fine = torch.relu(do["stem"](images))
        coarse = do["down"](fine)
        fine = do["lateral"](fine) + coarse.repeat_interleave(2, 1).repeat_interleave(2, 2)
        levels = []
        for feature, scale, stride in zip((fine, coarse), self.scales, STRIDES):
            c = torch.relu(do["cls_tower_norm"](do["cls_tower"](feature)))  # <- grouped
            b = torch.relu(do["bbox_tower_norm"](do["bbox_tower"](feature)))  # <- grouped
            reg = (scale * do["bbox_pred"](b)).exp() * stride
            levels.append(torch.cat((do["cls_logits"](c), reg, do["ctrness"](b)), 3).flatten(1, 2))
        return torch.cat(levels, 1).split((K, 4, 1), 2)


def locations():
    points, limits = [], []
    for stride, limit in zip(STRIDES, ((0, 9), (9, 1000))):
        axis = torch.arange(stride // 2, SIDE, stride)  # <- centres
        points.append(torch.cartesian_prod(axis, axis).flip(1))  # <- centres
        limits.append(torch.tensor(limit).expand(len(axis) ** 2, 2))
    return torch.cat(points).float(), torch.cat(limits)


POINTS, LIMITS = locations()


def assign(boxes, classes):
    """Targets of all images: one-hot classes, distances, whether a location holds a box."""
    areas = (boxes[..., 2:] - boxes[..., :2]).prod(2)
    order = areas.argsort(dim=1, stable=True)  # <- smallest
    boxes = boxes.gather(1, order[..., None].expand(-1, -1, 4))  # <- smallest
    classes = classes.gather(1, order)  # <- smallest
    at = POINTS[None, :, None]
    away = torch.cat((at - boxes[:, None, :, :2], boxes[:, None, :, 2:] - at), 3)  # <- centres
    fits = away.amax(3)
    fits = (fits >= LIMITS[:, :1]) & (fits < LIMITS[:, 1:]) & (away > 0).all(3)
    first = fits.float().argmax(2, keepdim=True)  # <- smallest
    positive = fits.any(2)
    which = classes.gather(1, first[..., 0])  # <- smallest
    goal = F.one_hot(which, K) * positive[..., None]
    return goal.float(), away.gather(2, first[..., None].expand(-1, -1, -1, 4))[:, :, 0], positive


def total_loss(outputs, boxes, classes):
    logits, reg, ctr = outputs
    goal, away, positive = assign(boxes, classes)
    sign = 2 * goal - 1
    miss = torch.sigmoid(-sign * logits)
    balance = torch.where(goal > 0, 0.25, 0.75)  # <- alpha
    focal = -(balance * miss.square() * F.logsigmoid(sign * logits)).sum()  # <- alpha
    t = torch.where(positive[..., None], away, 1.0)
    spans = [a[..., :2] + a[..., 2:] for a in (torch.minimum(reg, t), reg, t)]
    both, mine, theirs = (span.prod(2) for span in spans)
    iou = (both + 1) / (mine + theirs - both + 1)
    ratio = torch.minimum(t[..., :2], t[..., 2:]) / torch.maximum(t[..., :2], t[..., 2:])
    center = ratio.prod(2).sqrt()
    n, weight = positive.sum(), center * positive
    ctr = ctr[..., 0]
    bce = (F.softplus(ctr) - ctr * center) * positive
    return focal / n - (iou.log() * weight).sum() / weight.sum() + bce.sum() / n


model = Detector(sys.argv[1])
velocity = [torch.zeros_like(v) for v in model.variables]
rng = torch.Generator().manual_seed(72)
losses = []
for rate in (0.005, 0.01, 0.015, 0.02):
    images = torch.randn(3, 3, SIDE, SIDE, generator=rng).movedim(1, 3)
    low = torch.randint(0, 16, (3, 3, 2), generator=rng)
    boxes = torch.cat((low, low + torch.randint(7, 17, (3, 3, 2), generator=rng)), 2).float()
    classes = torch.randint(0, K, (3, 3), generator=rng)
    loss = total_loss(model(images), boxes, classes)
    with torch.no_grad():
        for v, a, g in zip(model.variables, velocity, torch.autograd.grad(loss, model.variables)):
            a.mul_(0.9).add_(g)  # <- velocity
            v.sub_(rate * a)  # <- velocity
    losses.append(loss.item())
