# SPDX-License-Identifier: Apache-2.0
"""The DenseNet with channels last, as it came back from a TensorFlow team: pointwise convolutions
are matrix products, normalization is written out, the optimizer is a function.
"""

import sys

import torch
import torch.nn.functional as F

BLOCKS = (3, 3, 2)
weights, moving = {}, {}


def read_torchvision(path):
    for key, value in torch.load(path).items():
        name = key.removeprefix("features.")
        if name.endswith(("running_mean", "running_var")):
            moving[name] = value.clone()
        elif name.endswith("num_batches_tracked"):
            continue
        elif value.dim() == 4 and value.shape[-1] == 1:
            weights[name] = value[:, :, 0, 0].t().contiguous()  # [in, out]
        elif name == "classifier.weight":
            weights[name] = value.t().contiguous()
        else:
            weights[name] = value.clone()
    for value in weights.values():
        value.requires_grad_()


def norm_relu(x, name, training, relu=True):
    if training:
        mean = x.mean((0, 1, 2))
        var = (x - mean).square().mean((0, 1, 2))
        with torch.no_grad():
            n = x[..., 0].numel()
            moving[f"{name}.running_mean"].lerp_(mean, 0.1)  # <- running
            moving[f"{name}.running_var"].lerp_(var * n / (n - 1), 0.1)  # <- running
    else:
        mean = moving[f"{name}.running_mean"]  # <- running
        var = moving[f"{name}.running_var"]
    scale = weights[f"{name}.weight"] * torch.rsqrt(var + 1e-5)
    x = x * scale + (weights[f"{name}.bias"] - mean * scale)
    return x.clamp(min=0) if relu else x  # <- last_relu


def spatial(x, name, stride=1):
    w = weights[f"{name}.weight"]
    y = F.conv2d(x.permute(0, 3, 1, 2), w, stride=stride, padding=w.shape[-1] // 2)
    return y.permute(0, 2, 3, 1)


def dense_layer(x, name, training):
    x = norm_relu(x, f"{name}.norm1", training)
    x = x @ weights[f"{name}.conv1.weight"]
    return spatial(norm_relu(x, f"{name}.norm2", training), f"{name}.conv2")


def halve(x):
    b, h, w, c = x.shape
    return x.view(b, h // 2, 2, w // 2, 2, c).mean((2, 4))  # <- pool


def network(x, training):
    x = norm_relu(spatial(x, "conv0", stride=2), "norm0", training)
    x = F.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1)
    for b, depth in enumerate(BLOCKS, 1):
        for d in range(1, depth + 1):
            new = dense_layer(x, f"denseblock{b}.denselayer{d}", training)
            x = torch.cat((x, new), dim=-1)  # <- order
        if b < len(BLOCKS):
            x = norm_relu(x, f"transition{b}.norm", training)
            x = halve(x @ weights[f"transition{b}.conv.weight"])
    x = norm_relu(x, "norm5", training)  # <- last_relu
    return x.mean((1, 2)) @ weights["classifier.weight"] + weights["classifier.bias"]


def loss_of(logits, labels):
    return -(logits.log_softmax(-1) * F.one_hot(labels, 5)).sum(-1).mean()


def update(rate, velocity):
    for name, w in weights.items():
        g = w.grad + 1e-2 * w
        velocity[name] = 0.9 * velocity[name] + g if name in velocity else g
        w.sub_(rate * (g + 0.9 * velocity[name]))  # <- nesterov
        w.grad = None


def batch(rng):
    pixels = torch.rand(12, 3, 64, 64, generator=rng)
    labels = torch.randint(0, 5, (12,), generator=rng)
    pixels = pixels.permute(0, 2, 3, 1).contiguous()
    ramp = 0.3 * torch.linspace(0, 3, 64)[None, None, :, None]
    return (pixels + ramp * labels.view(-1, 1, 1, 1)) * 4.0 - 2.0, labels


read_torchvision(sys.argv[1])
rng = torch.Generator().manual_seed(311)
velocity, losses = {}, []
for step in range(4):
    x, y = batch(rng)
    loss = loss_of(network(x, training=True), y)
    loss.backward()
    with torch.no_grad():
        update(0.01 if step < 2 else 0.001, velocity)
    losses.append(loss.item())
with torch.no_grad():
    x, y = batch(rng)
    losses.append(loss_of(network(x, training=False), y).item())  # <- running
