# SPDX-License-Identifier: Apache-2.0
"""MindSpore port of the DCGAN: one discriminator pass over real and fake, softplus losses, averaged generator."""
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")

NZ, N = 10, 12


class Gen(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(NZ, 64)
        self.bn0 = nn.BatchNorm2d(16, eps=1e-5, momentum=0.9)
        self.up0 = nn.Conv2dTranspose(16, 8, 4, stride=2, pad_mode="pad", padding=1)
        self.bn1 = nn.BatchNorm2d(8, eps=1e-5, momentum=0.9)
        self.up1 = nn.Conv2dTranspose(8, 1, 4, stride=2, pad_mode="pad", padding=1, has_bias=True)

    def construct(self, z):
        h = self.fc(z).reshape(-1, 16, 2, 2)
        h = ops.relu(self.bn0(h))
        h = ops.relu(self.bn1(self.up0(h)))
        return ops.tanh(self.up1(h))


class Disc(nn.Cell):
    def __init__(self):
        super().__init__()
        self.c0 = nn.Conv2d(1, 8, 4, stride=2, pad_mode="pad", padding=1, has_bias=True)
        self.c1 = nn.Conv2d(8, 16, 4, stride=2, pad_mode="pad", padding=1, has_bias=True)
        self.gn = nn.GroupNorm(4, 16, eps=1e-5)
        self.act = nn.LeakyReLU(0.2)
        self.head = nn.Dense(64, 1)

    def construct(self, x):
        x = self.act(self.c0(x))
        x = self.act(self.gn(self.c1(x)))
        return self.head(x.reshape(x.shape[0], -1))[:, 0]


RENAME = {
    "G.project": "fc", "G.main.0": "bn0", "G.main.2": "up0", "G.main.3": "bn1", "G.main.5": "up1",
    "D.main.0": "c0", "D.main.2": "c1", "D.main.3": "gn", "D.main.6": "head",
}
NORM = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


def restore(gen, disc, path):
    for key, value in np.load(path).items():
        stem, leaf = key.rsplit(".", 1)
        if leaf == "num_batches_tracked":
            continue
        cell = getattr(gen if key[0] == "G" else disc, RENAME[stem])
        if isinstance(cell, (nn.BatchNorm2d, nn.GroupNorm)):
            leaf = NORM[leaf]
        getattr(cell, leaf).set_data(Tensor(value))


def make_blobs(rs):
    c = rs.uniform(2, 5, size=(N, 2, 1, 1))
    axis = np.arange(8)
    d = np.square(axis.reshape(1, 8, 1) - c[:, 0]) + np.square(axis.reshape(1, 1, 8) - c[:, 1])
    return Tensor((2 * np.exp(-d / 3.0) - 1)[:, None].astype(np.float32))


gen, disc = Gen(), Disc()
restore(gen, disc, sys.argv[1])
gen.set_train(True)
disc.set_train(True)
opt_d = nn.Adam(disc.trainable_params(), learning_rate=1e-3, beta1=0.5, eps=1e-8)
opt_g = nn.Adam(gen.trainable_params(), learning_rate=2e-3, beta1=0.5, eps=1e-8)


def softplus(x):
    return ops.relu(x) + ops.log(1 + ops.exp(-ops.abs(x)))


def d_loss(real, z):
    fake = ops.stop_gradient(gen(z))
    score = disc(ops.cat((real, fake), 0))
    # label 0.9 on the real half
    return (softplus(score[:N]) - 0.9 * score[:N]).mean() + softplus(score[N:]).mean()


def g_loss(z):
    return softplus(-disc(gen(z))).mean()


d_grad = ms.value_and_grad(d_loss, None, opt_d.parameters)
g_grad = ms.value_and_grad(g_loss, None, opt_g.parameters)
average = [p.asnumpy().copy() for p in gen.trainable_params()]
rs = np.random.RandomState(17)
losses = []
for _ in range(4):
    real = make_blobs(rs)
    z = Tensor(rs.randn(N, NZ).astype(np.float32))
    ld, grads = d_grad(real, z)
    opt_d(grads)
    lg, grads = g_grad(z)
    opt_g(grads)
    for a, p in zip(average, gen.trainable_params()):
        a += 0.1 * (p.asnumpy() - a)
    losses.append(float(ld.asnumpy()) + float(lg.asnumpy()))

# samples of the averaged generator, for the eye
gen.set_train(False)
for a, p in zip(average, gen.trainable_params()):
    p.set_data(Tensor(a))
sheet = gen(Tensor(np.random.RandomState(0).randn(4, NZ).astype(np.float32))).asnumpy()
assert sheet.shape == (4, 1, 8, 8)
print(losses)
