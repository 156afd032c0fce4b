# SPDX-License-Identifier: Apache-2.0
"""The same U-Net as TensorFlow would have it: channels last, convolutions as sums over taps, lists of
weights taken layer by layer, a Dice of its own, momentum written out.
"""

import itertools
import sys

import numpy as np
import torch

NUM_CLASSES, NUM_GROUPS = 3, 4


def conv3d_same(x, kernel, bias):
    """x: batch, depth, height, width, channels; kernel: three sizes, in, out."""
    depth, height, width = x.shape[1:4]
    padded = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1, 1, 1))
    out = bias
    for i, j, k in itertools.product(range(3), repeat=3):
        out = out + padded[:, i : i + depth, j : j + height, k : k + width] @ kernel[i, j, k]
    return out


def group_normalization(x, gamma, beta, epsilon=1e-5):
    groups = x.reshape(x.shape[0], -1, NUM_GROUPS, x.shape[-1] // NUM_GROUPS)  # <- groups
    mean = groups.mean(dim=(1, 3), keepdim=True)  # <- groups
    variance = (groups - mean).square().mean(dim=(1, 3), keepdim=True)  # <- groups
    normed = (groups - mean) / torch.sqrt(variance + epsilon)  # <- epsilon groups
    return normed.reshape(x.shape) * gamma + beta


def leaky_relu(x, alpha=0.01):
    return torch.where(x > 0, x, alpha * x)


def double_conv(x, weights):
    for kernel, bias, gamma, beta in (weights[:4], weights[4:]):
        x = leaky_relu(group_normalization(conv3d_same(x, kernel, bias), gamma, beta))
    return x


def max_pool(x):
    b, d, h, w, c = x.shape
    return x.reshape(b, d // 2, 2, h // 2, 2, w // 2, 2, c).amax(dim=(2, 4, 6))  # <- pool


def conv3d_transpose(x, kernel, bias):
    b, d, h, w, _ = x.shape
    blocks = torch.einsum("bdhwi,xyzio->bdxhywzo", x, kernel)  # <- axes
    return blocks.reshape(b, 2 * d, 2 * h, 2 * w, -1) + bias


def unet(weights, x):
    skip = double_conv(x, weights["down"])
    x = double_conv(max_pool(skip), weights["bottom"])
    x = conv3d_transpose(x, *weights["upsample"])
    x = double_conv(torch.cat([x, skip], dim=-1), weights["up"])  # <- skip
    kernel, bias = weights["logits"]
    return x @ kernel + bias


def dice_and_crossentropy(y_true, logits, smooth=1e-5):
    """y_true: one-hot, classes last."""
    log_p = logits.log_softmax(-1)
    p, y = log_p.exp()[..., 1:], y_true[..., 1:]  # <- background
    axes = (1, 2, 3)
    overlap = (p * y).sum(axes)  # <- samples
    total = (p + y).sum(axes)  # <- samples
    dice = 1 - ((2 * overlap + smooth) / (total + smooth)).mean()
    return dice - (y_true * log_p).sum(-1).mean()


def from_torch(state):
    def conv(name):
        return [state[f"{name}.weight"].permute(2, 3, 4, 1, 0).contiguous(), state[f"{name}.bias"]]

    def norm(name):
        return [state[f"{name}.weight"], state[f"{name}.bias"]]

    def block(name):
        first, second = conv(f"{name}.0"), conv(f"{name}.3")
        return first + norm(f"{name}.1") + second + norm(f"{name}.4")

    kernel = state["up.weight"].permute(2, 3, 4, 0, 1).contiguous()  # <- axes
    return {
        "down": block("encoder"),
        "bottom": block("bottleneck"),
        "upsample": [kernel, state["up.bias"]],
        "up": block("decoder"),
        "logits": [state["head.weight"][:, :, 0, 0, 0].T.contiguous(), state["head.bias"]],
    }


def momentum_update(variables, gradients, velocities, rate, mu=0.99):
    with torch.no_grad():
        for w, g, v in zip(variables, gradients, velocities):
            slope = g + 3e-5 * w
            v.mul_(mu).add_(slope)
            w.sub_(rate * (slope + mu * v))  # <- nesterov


def polynomial_decay(step, initial=0.02, steps=20):
    return initial * (1 - step / steps) ** 0.9


def batches(rng, number, size=8):
    for _ in range(number):
        x = rng.standard_normal((2, size, size, size, 1), dtype=np.float32)
        labels = np.digitize(x[..., 0], [-0.6, 0.8])
        yield torch.from_numpy(x), torch.eye(NUM_CLASSES)[torch.from_numpy(labels)]


weights = from_torch(torch.load(sys.argv[1]))
variables = [w.requires_grad_() for layer in weights.values() for w in layer]
velocities = [torch.zeros_like(w) for w in variables]
losses = []
for step, (x, y_true) in enumerate(batches(np.random.default_rng(42), 3)):
    loss = dice_and_crossentropy(y_true, unet(weights, x))
    gradients = torch.autograd.grad(loss, variables)
    momentum_update(variables, gradients, velocities, polynomial_decay(step))
    losses.append(loss.item())
