# SPDX-License-Identifier: Apache-2.0
"""PointNet as Qi et al. (2017) have it: T-Nets that align points and features, shared MLPs as
convolutions of width one, a maximum over the points, a penalty that keeps the big transform
orthogonal.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

BATCH, POINTS, CLASSES = 8, 40, 5


class TNet(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.conv1 = nn.Conv1d(k, 16, 1, bias=False)
        self.conv2 = nn.Conv1d(16, 32, 1, bias=False)
        self.fc1 = nn.Linear(32, 20, bias=False)
        self.fc2 = nn.Linear(20, k * k)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm1d(16), nn.BatchNorm1d(32), nn.BatchNorm1d(20)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))  # <- eps
        x = F.relu(self.bn2(self.conv2(x)))  # <- eps
        x = torch.max(x, 2)[0]
        x = F.relu(self.bn3(self.fc1(x)))  # <- eps
        x = self.fc2(x)
        iden = torch.eye(self.k).flatten()  # <- identity
        return (x + iden).view(-1, self.k, self.k)  # <- identity


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stn, self.fstn = TNet(3), TNet(16)
        self.conv1 = nn.Conv1d(3, 16, 1, bias=False)
        self.conv2 = nn.Conv1d(16, 32, 1, bias=False)
        self.conv3 = nn.Conv1d(32, 48, 1, bias=False)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm1d(16), nn.BatchNorm1d(32), nn.BatchNorm1d(48)
        self.fc1, self.bn4 = nn.Linear(48, 24, bias=False), nn.BatchNorm1d(24)
        self.fc2 = nn.Linear(24, CLASSES)

    def forward(self, x):
        trans = self.stn(x)
        x = torch.bmm(x.transpose(2, 1), trans).transpose(2, 1)  # <- transform
        x = F.relu(self.bn1(self.conv1(x)))  # <- eps
        trans_feat = self.fstn(x)
        x = torch.bmm(x.transpose(2, 1), trans_feat).transpose(2, 1)  # <- transform
        x = F.relu(self.bn2(self.conv2(x)))  # <- eps
        x = self.bn3(self.conv3(x))  # <- eps relu
        x = torch.max(x, 2)[0]  # <- pool relu
        x = F.relu(self.bn4(self.fc1(x)))  # <- eps
        return F.log_softmax(self.fc2(x), dim=1), trans_feat


def feature_transform_regularizer(trans):
    eye = torch.eye(trans.shape[1])[None]
    gap = torch.bmm(trans, trans.transpose(2, 1)) - eye
    return torch.mean(torch.norm(gap, dim=(1, 2)))  # <- regulariser


def pc_normalize(points):
    points = points - points.mean(dim=1, keepdim=True)
    radius = points.norm(dim=2).max(dim=1)[0]  # <- sphere
    return points / radius[:, None, None]  # <- sphere


rng = np.random.default_rng(21)
clouds = rng.standard_normal((3, BATCH, POINTS, 3), dtype=np.float32)
stretch = rng.uniform(0.4, 1.6, (3, BATCH, 1, 3)).astype(np.float32)
shift = rng.uniform(-1, 1, (3, BATCH, 1, 3)).astype(np.float32)
labels = rng.integers(0, CLASSES, (3, BATCH))
torch.manual_seed(4)
model = PointNet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=0.001, betas=(0.9, 0.999), eps=1e-8)
losses = []
for step in range(3):
    points = pc_normalize(torch.from_numpy(clouds[step] * stretch[step] + shift[step]))
    target = torch.from_numpy(labels[step])
    optimizer.zero_grad()
    pred, trans_feat = model(points.transpose(2, 1))
    loss = F.nll_loss(pred, target) + 0.001 * feature_transform_regularizer(trans_feat)
    loss.backward()
    optimizer.step()  # <- correction
    losses.append(loss.item())
