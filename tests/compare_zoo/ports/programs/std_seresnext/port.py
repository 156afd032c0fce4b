# SPDX-License-Identifier: Apache-2.0
"""The squeeze-and-excite ResNeXt as plain functions: branches apart, own batch norm and Adam."""

import sys

import torch
import torch.nn.functional as F

STATS, W = {}, {}
for key, value in torch.load(sys.argv[1], weights_only=True).items():
    if "running" in key:
        STATS[key] = value
    elif "num_batches" not in key:
        W[key] = value.requires_grad_()


def bn(at, x, training):
    mean, var = STATS[at + ".running_mean"], STATS[at + ".running_var"]
    if training:
        n = x.numel() // x.shape[1]
        old = (mean, var)
        mean = x.mean((0, 2, 3))
        var = ((x - mean[:, None, None]) ** 2).mean((0, 2, 3))
        with torch.no_grad():
            STATS[at + ".running_mean"] = 0.9 * old[0] + 0.1 * mean  # <- running
            STATS[at + ".running_var"] = 0.9 * old[1] + 0.1 * var * n / (n - 1)  # <- running
    scale = W[at + ".weight"] / torch.sqrt(var + 1e-5)
    return x * scale[:, None, None] + (W[at + ".bias"] - mean * scale)[:, None, None]


def pointwise(at, x):
    return torch.einsum("oi,bihw->bohw", W[at + ".weight"][:, :, 0, 0], x)


def branches(at, x, stride, cardinality=4):  # <- cardinality
    """each branch has its own channels in and out"""
    parts = x.chunk(cardinality, dim=1)  # <- cardinality
    kernels = W[at + ".weight"].chunk(cardinality, dim=0)  # <- cardinality
    done = [F.conv2d(p, k, stride=stride, padding=1) for p, k in zip(parts, kernels)]
    return torch.cat(done, dim=1)  # <- cardinality


def recalibrate(at, x):
    s = x.flatten(2).mean(2)  # <- squeeze
    s = torch.relu(s @ W[at + ".fc1.weight"].flatten(1).T + W[at + ".fc1.bias"])
    s = s @ W[at + ".fc2.weight"].flatten(1).T + W[at + ".fc2.bias"]
    return x * torch.sigmoid(s)[..., None, None]


def bottleneck(at, x, stride, training):
    skip = x
    if at + ".downsample.1.weight" in W:
        skip = bn(
            at + ".downsample.2", pointwise(at + ".downsample.1", F.avg_pool2d(x, stride)), training
        )
    y = torch.relu(bn(at + ".bn1", pointwise(at + ".conv1", x), training))
    y = torch.relu(bn(at + ".bn2", branches(at + ".conv2", y, stride), training))
    y = bn(at + ".bn3", pointwise(at + ".conv3", y), training)
    return torch.relu(recalibrate(at + ".se_module", y) + skip)


def pool(x):
    x = F.pad(x, (1, 1, 1, 1), value=-torch.inf)  # <- pooling
    return x.unfold(2, 3, 2).unfold(3, 3, 2).amax((4, 5))  # <- pooling


def loss_of(x, y, training=True):
    x = pool(F.conv2d(x, W["stem.weight"], W["stem.bias"], padding="same"))
    x = bottleneck("layer1", x, 1, training)
    x = bottleneck("layer2", x, 2, training)
    z = x.flatten(2).mean(2) @ W["last_linear.weight"].T + W["last_linear.bias"]
    return -(F.one_hot(y, 5) * z.log_softmax(1)).sum() / len(y)


M = {k: torch.zeros_like(w) for k, w in W.items()}
V = {k: torch.zeros_like(w) for k, w in W.items()}
rng = torch.Generator().manual_seed(41)
losses = []
for t in range(1, 5):
    images = torch.randn(6, 3, 16, 16, generator=rng)
    value = loss_of(images, torch.randint(0, 5, (6,), generator=rng))
    grads = torch.autograd.grad(value, list(W.values()))
    with torch.no_grad():
        for (k, w), g in zip(W.items(), grads):
            M[k] = 0.9 * M[k] + 0.1 * g
            V[k] = 0.999 * V[k] + 0.001 * g * g
            root = (V[k] / (1 - 0.999**t)).sqrt() + 1e-5  # <- moments
            w -= 1e-3 / (1 - 0.9**t) * M[k] / root  # <- moments
    losses.append(value.item())
with torch.no_grad():
    images = torch.randn(6, 3, 16, 16, generator=rng)
    losses.append(loss_of(images, torch.arange(6) % 5, training=False).item())  # <- running
print(losses)
