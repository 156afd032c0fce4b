# SPDX-License-Identifier: Apache-2.0
"""The same PointNet with channels last: kernels of inputs by outputs, batch norm written out over
all axes but the last, einsum for the transforms, Adam by hand.
"""

import sys

import numpy as np
import torch
from torch import nn

B, N, K = 8, 40, 5


class Dense(nn.Module):
    def __init__(self, inputs, outputs, *, rectify=True):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(inputs, outputs))
        self.gamma = nn.Parameter(torch.empty(outputs))
        self.beta = nn.Parameter(torch.empty(outputs))
        self.rectify = rectify

    def forward(self, x):
        x = x @ self.kernel
        axes = tuple(range(x.dim() - 1))
        centred = x - x.mean(axes)
        variance = centred.square().mean(axes)
        x = centred * torch.rsqrt(variance + 1e-5) * self.gamma + self.beta  # <- eps
        return torch.relu(x) if self.rectify else x  # <- relu


class Affine(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.kernel + self.bias


class Aligner(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.points = nn.Sequential(Dense(size, 16), Dense(16, 32))
        self.whole = Dense(32, 20)
        self.matrix = Affine(20, size * size)

    def forward(self, cloud):
        h = self.points(cloud).amax(dim=1)
        m = self.matrix(self.whole(h)).reshape(-1, self.size, self.size)  # <- identity
        return m + torch.eye(self.size)  # <- identity


def moved(cloud, matrix):
    return torch.einsum("bnc,bcd->bnd", cloud, matrix)  # <- transform identity


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.align_points, self.align_features = Aligner(3), Aligner(16)
        self.first = Dense(3, 16)
        self.second = nn.Sequential(Dense(16, 32), Dense(32, 48, rectify=False))  # <- relu
        self.head = nn.Sequential(Dense(48, 24), Affine(24, K))

    def forward(self, cloud):
        cloud = moved(cloud, self.align_points(cloud))
        features = self.first(cloud)
        matrix = self.align_features(features)
        features = self.second(moved(features, matrix))
        return self.head(features.amax(dim=1)), matrix  # <- pool


def converted(old):
    new = {}

    def dense(name, layer, norm):
        weight = old[f"{layer}.weight"]
        new[f"{name}.kernel"] = weight.reshape(weight.shape[:2]).T
        new[f"{name}.gamma"] = old[f"{norm}.weight"]
        new[f"{name}.beta"] = old[f"{norm}.bias"]

    def affine(name, layer):
        new[f"{name}.kernel"] = old[f"{layer}.weight"].T
        new[f"{name}.bias"] = old[f"{layer}.bias"]

    for mine, theirs in (("align_points", "stn"), ("align_features", "fstn")):
        dense(f"{mine}.points.0", f"{theirs}.conv1", f"{theirs}.bn1")
        dense(f"{mine}.points.1", f"{theirs}.conv2", f"{theirs}.bn2")
        dense(f"{mine}.whole", f"{theirs}.fc1", f"{theirs}.bn3")
        affine(f"{mine}.matrix", f"{theirs}.fc2")
    dense("first", "conv1", "bn1")
    dense("second.0", "conv2", "bn2")
    dense("second.1", "conv3", "bn3")
    dense("head.0", "fc1", "bn4")
    affine("head.1", "fc2")
    return new


def in_unit_sphere(cloud):
    cloud = cloud - cloud.mean(1, keepdim=True)
    square = cloud.square().sum(2, keepdim=True)
    return cloud / square.amax(1, keepdim=True).sqrt()  # <- sphere


def objective(scores, matrix, answer):
    likelihood = scores.log_softmax(1)[torch.arange(B), answer].mean()
    gap = matrix @ matrix.mT - torch.eye(16)
    penalty = gap.square().sum((1, 2)).sqrt().mean()  # <- regulariser
    return 1e-3 * penalty - likelihood


def adam(parameters, first, second, t, rate=1e-3):
    with torch.no_grad():
        for p, m, v in zip(parameters, first, second):
            m.mul_(0.9).add_(p.grad, alpha=0.1)
            v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            m_hat = m / (1 - 0.9**t)
            v_hat = v / (1 - 0.999**t)  # <- correction
            p.sub_(rate * m_hat / (v_hat.sqrt() + 1e-8))  # <- correction
            p.grad = None


rng = np.random.default_rng(21)
clouds = rng.standard_normal((3, B, N, 3), dtype=np.float32)
stretch = rng.uniform(0.4, 1.6, (3, B, 1, 3)).astype(np.float32)
shift = rng.uniform(-1, 1, (3, B, 1, 3)).astype(np.float32)
answers = rng.integers(0, K, (3, B))
net = Classifier()
net.load_state_dict(converted(torch.load(sys.argv[1])))
parameters = list(net.parameters())
first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
losses = []
for t in (1, 2, 3):
    cloud = in_unit_sphere(torch.tensor(clouds[t - 1] * stretch[t - 1] + shift[t - 1]))
    scores, matrix = net(cloud)
    loss = objective(scores, matrix, torch.tensor(answers[t - 1]))
    loss.backward()
    adam(parameters, first, second, t)
    losses.append(loss.item())
