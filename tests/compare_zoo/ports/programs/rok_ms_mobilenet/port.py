# SPDX-License-Identifier: Apache-2.0
"""MobileNetV2 on MindSpore, after the model zoo's layout (one-hot smoothed loss, nn.Momentum)."""
import sys

import mindspore as ms
import mindspore.nn as nn
import mindspore.ops as ops
import numpy as np
from mindspore import Tensor

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")

NUM_CLASSES = 5


def conv(in_c, out_c, k, s=1, group=1):
    return nn.Conv2d(in_c, out_c, k, stride=s, pad_mode="pad", padding=k // 2, group=group)  # <- same_padding


def bn(c):
    return nn.BatchNorm2d(c, eps=1e-5, momentum=0.9)  # <- bn_momentum


class ConvUnit(nn.Cell):
    def __init__(self, in_c, out_c, k, s=1, group=1, act=True):
        super().__init__()
        self.conv = conv(in_c, out_c, k, s, group)
        self.norm = bn(out_c)
        self.act = nn.ReLU6() if act else None

    def construct(self, x):
        x = self.norm(self.conv(x))  # <- same_padding bn_momentum bn_not_frozen
        return self.act(x) if self.act is not None else x


class Bottleneck(nn.Cell):
    def __init__(self, in_c, out_c, s, t):
        super().__init__()
        self.expand = ConvUnit(in_c, in_c * t, 1)
        self.depthwise = ConvUnit(in_c * t, in_c * t, 3, s, group=in_c * t)
        self.project = ConvUnit(in_c * t, out_c, 1, act=False)
        self.shortcut = s == 1 and in_c == out_c

    def construct(self, x):
        out = self.project(self.depthwise(self.expand(x)))
        if self.shortcut:
            out = ops.add(x, out)
        return out


class MobileNetV2(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = ConvUnit(3, 8, 3, 2)
        self.block1 = Bottleneck(8, 12, 2, 2)
        self.block2 = Bottleneck(12, 12, 1, 2)
        self.last = ConvUnit(12, 24, 1)
        self.fc = nn.Dense(24, NUM_CLASSES)

    def construct(self, x):
        x = self.last(self.block2(self.block1(self.stem(x))))
        return self.fc(ops.mean(x, (2, 3)))


class CrossEntropySmooth(nn.Cell):
    def __init__(self, smooth, classes):
        super().__init__()
        self.classes = classes
        self.on = Tensor(1.0 - smooth + smooth / classes, ms.float32)
        self.off = Tensor(smooth / classes, ms.float32)  # <- smoothing_off_value
        self.ce = nn.SoftmaxCrossEntropyWithLogits(sparse=False, reduction="mean")

    def construct(self, logits, label):
        target = ops.one_hot(label, self.classes, self.on, self.off)  # <- smoothing_off_value
        return self.ce(logits, target)  # <- smoothing_off_value


def convert(path):
    units = {"stem": ("0.0", "0.1"), "last": ("3.0", "3.1")}
    for i in (1, 2):
        units[f"block{i}.expand"] = (f"{i}.conv.0.0", f"{i}.conv.0.1")
        units[f"block{i}.depthwise"] = (f"{i}.conv.1.0", f"{i}.conv.1.1")
        units[f"block{i}.project"] = (f"{i}.conv.2", f"{i}.conv.3")
    names = dict(gamma="weight", beta="bias", moving_mean="running_mean", moving_variance="running_var")
    with np.load(path) as f:
        out = {"fc.weight": f["classifier.weight"], "fc.bias": f["classifier.bias"]}
        for unit, (c, n) in units.items():
            out[unit + ".conv.weight"] = f[f"features.{c}.weight"]
            for mine, theirs in names.items():
                out[f"{unit}.norm.{mine}"] = f[f"features.{n}.{theirs}"]
    return {k: ms.Parameter(Tensor(v), name=k) for k, v in out.items()}


network = MobileNetV2()
missing, _ = ms.load_param_into_net(network, convert(sys.argv[1]))
assert not missing, missing
loss_fn = CrossEntropySmooth(0.2, NUM_CLASSES)
backbone = [p for p in network.trainable_params() if not p.name.startswith("fc.")]
groups = [{"params": backbone, "lr": 0.05, "weight_decay": 1e-3},  # <- backbone_lr_lost
          {"params": network.fc.trainable_params(), "weight_decay": 1e-3}]
optimizer = nn.Momentum(groups, learning_rate=0.2, momentum=0.9)  # <- backbone_lr_lost


def compute(image, label):
    return loss_fn(network(image), label)


train = ms.value_and_grad(compute, None, optimizer.parameters)
rng = np.random.RandomState(21)
data = rng.randn(4, 8, 3, 16, 16).astype(np.float32) + 0.5
target = rng.randint(0, NUM_CLASSES, size=(4, 8)).astype(np.int32)
network.set_train(True)
losses = []
for i in range(4):
    for cell in network.cells_and_names():
        if isinstance(cell[1], nn.BatchNorm2d):
            cell[1].set_train(i < 2)  # <- bn_not_frozen
    value, grads = train(Tensor(data[i]), Tensor(target[i]))
    optimizer(grads)  # <- backbone_lr_lost
    losses.append(float(value))
print(losses)
