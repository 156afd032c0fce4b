# SPDX-License-Identifier: Apache-2.0
"""The ResNet on MindSpore (PyNative mode)."""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
CLASSES = 5


def conv3x3(n_in, n_out, stride=1):
    return nn.Conv2d(n_in, n_out, 3, stride, pad_mode="pad", padding=1)  # <- padding


def batch_norm(planes):
    return nn.BatchNorm2d(planes, eps=1e-5, use_batch_statistics=False)  # <- frozen


class BasicBlock(nn.Cell):
    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1 = conv3x3(inplanes, planes, stride)  # <- padding
        self.bn1 = batch_norm(planes)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = batch_norm(planes)
        self.relu = nn.ReLU()
        self.downsample = None
        if stride != 1:
            self.downsample = nn.SequentialCell(
                nn.Conv2d(inplanes, planes, 1, stride), batch_norm(planes)
            )

    def construct(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))  # <- padding frozen
        out = self.bn2(self.conv2(out))  # <- frozen
        return self.relu(out + identity)


class ResNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = conv3x3(3, 8)
        self.bn1 = batch_norm(8)  # <- statistics
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)  # <- maxpool
        self.layer1 = BasicBlock(8, 8, 1)
        self.layer2 = BasicBlock(8, 16, 2)  # <- padding
        self.layer3 = BasicBlock(16, 24, 2)  # <- padding
        self.fc = nn.Dense(24, CLASSES)

    def construct(self, x):
        x = self.relu(self.bn1(self.conv1(x)))  # <- frozen statistics
        x = self.maxpool(x)  # <- maxpool
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


BN = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "moving_mean",
    "running_var": "moving_variance",
}


def convert(weights):
    new = {}
    for name, value in weights.items():
        layer, kind = name.rsplit(".", 1)
        if "bn" in layer or layer.endswith("downsample.1"):
            name = f"{layer}.{BN[kind]}"
        new[name] = ms.Parameter(ms.Tensor(value), name=name)  # <- statistics
    return new


net = ResNet()
ms.load_param_into_net(net, convert(np.load(sys.argv[1])))  # <- statistics
net.set_train()
groups = [{"params": net.trainable_params(), "weight_decay": 5e-2}]  # <- decay
optimizer = nn.Momentum(groups, 0.05, 0.9)  # <- decay
loss_fn = nn.CrossEntropyLoss()


def forward_fn(images, labels):
    return loss_fn(net(images), labels)


grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters)
random = np.random.RandomState(9)
losses = []
for _ in range(4):
    images = random.randn(8, 3, 16, 16).astype(np.float32)
    labels = random.randint(0, CLASSES, 8)
    images += labels[:, None, None, None] * 0.2
    images, labels = ms.Tensor(images, ms.float32), ms.Tensor(labels, ms.int32)
    loss, grads = grad_fn(images, labels)
    optimizer(grads)  # <- decay
    losses.append(float(loss.asnumpy()))
print(losses)
