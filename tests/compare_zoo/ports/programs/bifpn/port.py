# SPDX-License-Identifier: Apache-2.0
"""The same EfficientDet as Keras people write it: channels last throughout, layers that are called
with training, depthwise products over patches, moving statistics assigned by hand.
"""

import sys

import numpy as np
import torch
from torch import nn

FILTERS, N_CLASSES, N_ANCHORS = 8, 4, 2


def swish(x):
    return x * torch.sigmoid(x)


def patches(x, stride, fill=0.0):
    """(batch, rows, columns, channels, 3, 3)."""
    padded = nn.functional.pad(x, (0, 0, 1, 1, 1, 1), value=fill)
    return padded.unfold(1, 3, stride).unfold(2, 3, stride)  # <- pooled


class BatchNormalization(nn.Module):
    def __init__(self, momentum=0.99, epsilon=1e-3):
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon
        self.gamma, self.beta = (nn.Parameter(torch.zeros(FILTERS)) for _ in range(2))
        self.register_buffer("moving_mean", torch.zeros(FILTERS))
        self.register_buffer("moving_variance", torch.ones(FILTERS))

    def forward(self, x, training):
        mean, variance = self.moving_mean, self.moving_variance  # <- running
        if training:
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2), correction=0)
            count = x.shape[0] * x.shape[1] * x.shape[2]
            unbiased = variance.detach() * (count / (count - 1))
            self.moving_mean.lerp_(mean.detach(), 1 - self.momentum)  # <- running
            self.moving_variance.lerp_(unbiased, 1 - self.momentum)  # <- running
        scale = self.gamma * torch.rsqrt(variance + self.epsilon)  # <- epsilon
        return (x - mean) * scale + self.beta  # <- epsilon


class SeparableConv2D(nn.Module):
    def __init__(self, filters, bias):
        super().__init__()
        self.depthwise = nn.Parameter(torch.zeros(3, 3, FILTERS))
        self.pointwise = nn.Parameter(torch.zeros(FILTERS, filters))
        self.bias = nn.Parameter(torch.zeros(filters)) if bias else None

    def forward(self, x):
        x = (
            torch.einsum("nhwcyx,yxc->nhwc", patches(x, 1), self.depthwise) @ self.pointwise
        )  # <- fused
        return x if self.bias is None else x + self.bias


class Node(nn.Module):
    """Inputs weighed and summed, an activation, a convolution, a norm."""

    def __init__(self, inputs):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(inputs))
        self.conv, self.bn = SeparableConv2D(FILTERS, bias=False), BatchNormalization()

    def forward(self, inputs, training):
        edge = torch.relu(self.weights)  # <- positive
        edge = edge / (edge.sum() + 0.0001)  # <- share
        fused = torch.einsum("k,knhwc->nhwc", edge, torch.stack(inputs))
        return self.bn(self.conv(swish(fused)), training)  # <- fused


def grown(x):
    return x.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)


def shrunk(x):
    return patches(x, 2, fill=-torch.inf).amax((-2, -1))  # <- pooled


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.td4, self.td3, self.bu4, self.bu5 = Node(2), Node(2), Node(3), Node(2)

    def forward(self, c3, c4, c5, training):
        td4 = self.td4([c4, grown(c5)], training)
        out3 = self.td3([c3, grown(td4)], training)
        out4 = self.bu4([c4, td4, shrunk(out3)], training)  # <- source
        out5 = self.bu5([c5, shrunk(out4)], training)
        return out3, out4, out5


class Head(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.conv = SeparableConv2D(FILTERS, bias=True)
        self.bns = nn.ModuleList([BatchNormalization() for _ in range(3)])
        self.header = SeparableConv2D(N_ANCHORS * outputs, bias=True)
        self.outputs = outputs

    def forward(self, pyramid, training):
        found = []
        for level, bn in zip(pyramid, self.bns):
            x = self.header(swish(bn(self.conv(level), training)))
            n, h, w, _ = x.shape
            x = x.reshape(n, h * w * N_ANCHORS, self.outputs)  # <- anchors
            found.append(x)
        return torch.cat(found, dim=1)  # <- anchors


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(27, FILTERS)
        self.stage1, self.stage2 = nn.Linear(9 * FILTERS, FILTERS), nn.Linear(9 * FILTERS, FILTERS)
        self.cell1, self.cell2 = Cell(), Cell()
        self.labels, self.boxes = Head(N_CLASSES), Head(4)

    def forward(self, images, training):
        c3 = swish(self.stem(patches(images, 4).flatten(3)))
        c4 = swish(self.stage1(patches(c3, 2).flatten(3)))
        c5 = swish(self.stage2(patches(c4, 2).flatten(3)))
        pyramid = self.cell2(*self.cell1(c3, c4, c5, training), training)
        return self.labels(pyramid, training), self.boxes(pyramid, training)


def losses_of(scores, offsets, labels, boxes):
    there = (labels >= 0).float()
    count = there.sum() + 1.0
    truth = nn.functional.one_hot(labels + 1, N_CLASSES + 1)[..., 1:].float()
    wrong = torch.where(truth > 0, -scores, scores)
    weight = torch.where(truth > 0, 0.25, 0.75)  # <- alpha
    focal = weight * torch.sigmoid(wrong) ** 1.5 * nn.functional.softplus(wrong)  # <- alpha
    off = (offsets - boxes).abs()
    near = off.clamp(max=0.1)
    huber = near * (off - 0.5 * near)  # <- huber
    return focal.sum() / count + 50.0 * (huber.mean(-1) * there).sum() / count


def norm(old, name):
    words = {"gamma": "weight", "beta": "bias"}
    words |= {"moving_mean": "running_mean", "moving_variance": "running_var"}
    return {mine: old[f"{name}.{theirs}"] for mine, theirs in words.items()}


def separable(old, name):
    new = {
        "depthwise": old[f"{name}.depthwise.weight"][:, 0].permute(1, 2, 0),
        "pointwise": old[f"{name}.pointwise.weight"][:, :, 0, 0].T,
    }
    if f"{name}.pointwise.bias" in old:
        new["bias"] = old[f"{name}.pointwise.bias"]
    return new


def under(prefix, weights):
    return {f"{prefix}.{name}": weight for name, weight in weights.items()}


def head(old, name):
    new = under("conv", separable(old, f"{name}.conv"))
    new |= under("header", separable(old, f"{name}.header"))
    for level in range(3):
        new |= under(f"bns.{level}", norm(old, f"{name}.bns.{level}"))
    return new


def keras(old):
    new = {}
    stems = {"stem": "stem", "stage1": "stages.0", "stage2": "stages.1"}
    for mine, theirs in stems.items():
        new[f"{mine}.weight"] = old[f"{theirs}.weight"].flatten(1)
        new[f"{mine}.bias"] = old[f"{theirs}.bias"]
    nodes = {"td4": ("conv4_up", "p4_w1"), "td3": ("conv3_up", "p3_w1")}
    nodes |= {"bu4": ("conv4_down", "p4_w2"), "bu5": ("conv5_down", "p5_w2")}
    for n in range(2):
        for node, (conv, weights) in nodes.items():
            at = f"cell{n + 1}.{node}"
            new[f"{at}.weights"] = old[f"bifpn.{n}.{weights}"]
            new |= under(f"{at}.conv", separable(old, f"bifpn.{n}.{conv}"))
            new |= under(f"{at}.bn", norm(old, f"bifpn.{n}.{conv}.bn"))
    return new | under("labels", head(old, "classifier")) | under("boxes", head(old, "regressor"))


net = Detector()
net.load_state_dict(keras(torch.load(sys.argv[1])))
sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=4e-5, foreach=True)
rng = np.random.default_rng(167)
losses = []
for _ in range(3):
    images = torch.tensor(rng.normal(size=(2, 3, 32, 32)).astype(np.float32)).permute(0, 2, 3, 1)
    labels = torch.tensor(rng.integers(0, N_CLASSES, (2, 168)))
    labels[torch.tensor(rng.random((2, 168)) >= 0.1)] = -1
    boxes = torch.tensor(rng.normal(0, 0.3, (2, 168, 4)).astype(np.float32))
    loss = losses_of(*net(images, training=True), labels, boxes)
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    losses.append(loss.item())
with torch.inference_mode():
    losses.append(losses_of(*net(images, training=False), labels, boxes).item())
