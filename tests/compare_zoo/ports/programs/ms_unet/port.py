# SPDX-License-Identifier: Apache-2.0
"""The UNet on MindSpore in graph mode, WithLossCell and TrainOneStepCell."""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")


class DoubleConv(nn.Cell):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, pad_mode="pad", padding=1, has_bias=True)
        self.norm = nn.GroupNorm(2, n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, pad_mode="pad", padding=1, has_bias=True)
        self.act = nn.LeakyReLU(alpha=0.01)  # <- slope

    def construct(self, x):
        x = self.act(self.norm(self.conv1(x)))  # <- slope
        return self.act(self.conv2(x))  # <- slope


class UNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enter = DoubleConv(3, 6)
        self.deep = DoubleConv(6, 8)
        self.pool = nn.AvgPool2d(kernel_size=2, stride=2)
        self.up = nn.Conv2dTranspose(
            8, 6, 4, stride=2, pad_mode="pad", padding=1, has_bias=True
        )  # <- up_bias
        self.leave = DoubleConv(12, 6)
        self.out = nn.Conv2d(6, 1, 1, has_bias=True)

    def construct(self, x):
        skip = self.enter(x)
        x = self.deep(self.pool(skip))
        x = self.up(x)  # <- up_bias
        x = self.leave(ops.cat((skip, x), axis=1))  # <- concat
        return self.out(x)


net = UNet()
params = {}
for name, value in np.load(sys.argv[1]).items():
    if ".norm." in name:
        name = name.replace("weight", "gamma").replace("bias", "beta")
    params[name] = ms.Parameter(ms.Tensor(value), name=name)  # <- up_bias
ms.load_param_into_net(net, params)
rates = nn.piecewise_constant_lr([2, 4], [5e-3, 5e-4])  # <- lr_step
optimizer = nn.Adam(net.trainable_params(), learning_rate=rates)  # <- lr_step
criterion = nn.BCEWithLogitsLoss(pos_weight=ms.Tensor([3.0], ms.float32))  # <- pos_weight
train_step = nn.TrainOneStepCell(nn.WithLossCell(net, criterion), optimizer)
train_step.set_train()
random = np.random.RandomState(12)
losses = []
for _ in range(4):
    images = random.randn(4, 3, 12, 12).astype(np.float32)
    masks = (images.sum(1, keepdims=True) > 1.0).astype(np.float32)
    loss = train_step(ms.Tensor(images), ms.Tensor(masks))  # <- pos_weight lr_step
    losses.append(float(loss.asnumpy()))
print(losses)
