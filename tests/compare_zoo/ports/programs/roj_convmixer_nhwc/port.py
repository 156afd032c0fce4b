# SPDX-License-Identifier: Apache-2.0
"""ConvMixer in a Flax-like style: NHWC images, HWIO kernels, init/apply functions, an optax-like optimizer."""
import math
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

DEPTH, PATCH, CLASSES = 2, 2, 4


# --- tree helpers -------------------------------------------------------------------------------
def tree_map(fn, tree, *rest):
    if isinstance(tree, dict):
        return {k: tree_map(fn, v, *(r[k] for r in rest)) for k, v in tree.items()}
    return fn(tree, *rest)


def leaves(tree):
    if isinstance(tree, dict):
        return [x for v in tree.values() for x in leaves(v)]
    return [tree]


def rebuild(tree, flat):
    it = iter(flat)
    return tree_map(lambda _: next(it), tree)


# --- model --------------------------------------------------------------------------------------
def load_variables(path):
    sd = torch.load(path)

    def layer(conv, bn):
        return {
            "kernel": sd[conv + ".weight"].permute(2, 3, 1, 0).contiguous(),
            "bias": sd[conv + ".bias"],
            "norm": {"scale": sd[bn + ".weight"], "offset": sd[bn + ".bias"]},
        }

    tree = {"stem": layer("stem.0", "stem.2")}
    for i in range(DEPTH):
        b = f"blocks.{i}."
        tree[f"spatial_{i}"] = layer(b + "0.fn.0", b + "0.fn.2")
        tree[f"channel_{i}"] = layer(b + "1", b + "3")
    tree["head"] = {"kernel": sd["head.weight"].t().contiguous(), "bias": sd["head.bias"]}
    return tree_map(lambda x: x.clone().requires_grad_(), tree)


def act_norm(x, norm):
    x = F.gelu(x)
    mu = x.mean(dim=(0, 1, 2))
    second = (x - mu).pow(2).mean(dim=(0, 1, 2))
    return (x - mu) * torch.rsqrt(second + 1e-5) * norm["scale"] + norm["offset"]  # <- norm_eps_of_keras


def patchify(x, p):
    kernel = p["kernel"]
    n, h, w, c = x.shape
    x = x.reshape(n, h // PATCH, PATCH, w // PATCH, PATCH, c)
    return torch.einsum("nhiwjc,ijco->nhwo", x, kernel) + p["bias"]


def depthwise(x, p):
    k = p["kernel"].squeeze(2)
    n, h, w, _ = x.shape
    padded = F.pad(x, (0, 0, 1, 1, 1, 1))
    total = p["bias"]
    for i in range(k.shape[0]):
        for j in range(k.shape[1]):
            total = total + padded[:, i : i + h, j : j + w] * k[i, j]
    return total


def apply(tree, x):
    x = act_norm(patchify(x, tree["stem"]), tree["stem"]["norm"])
    for i in range(DEPTH):
        s, c = tree[f"spatial_{i}"], tree[f"channel_{i}"]
        x = x + act_norm(depthwise(x, s), s["norm"])  # <- norm_eps_of_keras
        x = act_norm(x @ c["kernel"][0, 0] + c["bias"], c["norm"])  # <- norm_eps_of_keras
    return x.mean(dim=(1, 2)) @ tree["head"]["kernel"] + tree["head"]["bias"]


def sigmoid_bce(logits, labels, smoothing=0.1):
    onehot = torch.eye(CLASSES)[labels]
    target = onehot * (1 - smoothing) + smoothing / CLASSES  # <- bce_smoothing_to_half
    return (F.softplus(logits) - logits * target).mean()  # <- bce_smoothing_to_half


# --- optimizer ----------------------------------------------------------------------------------
class RmsState(NamedTuple):
    nu: dict
    trace: dict
    count: int


def rms_init(tree):
    nu = tree_map(torch.ones_like, tree)  # <- mean_square_from_zero
    return RmsState(nu, tree_map(torch.zeros_like, tree), 0)


def rms_update(grads, state, tree, decay=0.9, eps=1e-3, momentum=0.9, l2=1e-2):
    lr = 0.008 * math.pow(0.8, state.count)
    grads = tree_map(lambda g, p: g + l2 * p, grads, tree)
    nu = tree_map(lambda n, g: decay * n + (1 - decay) * g * g, state.nu, grads)  # <- mean_square_from_zero
    step = tree_map(lambda g, n: lr * g / torch.sqrt(n + eps), grads, nu)
    trace = tree_map(lambda t, s: momentum * t + s, state.trace, step)
    return trace, RmsState(nu, trace, state.count + 1)


# --- data and loop ------------------------------------------------------------------------------
def stream(n=6):
    gen = torch.Generator().manual_seed(2024)
    ramp = torch.linspace(-1, 1, 16)
    while True:
        label = torch.randint(0, CLASSES, (n,), generator=gen)
        image = 0.5 * torch.randn(n, 3, 16, 16, generator=gen).permute(0, 2, 3, 1)
        angle = (label * 0.7)[:, None, None, None]
        image = image + torch.cos(angle) * ramp[:, None, None] + torch.sin(angle) * ramp[:, None]
        coin = torch.rand(n, generator=gen).lt(0.5)
        flipped = torch.flip(image, dims=(2,))  # <- flip_wrong_axis
        yield torch.where(coin[:, None, None, None], flipped, image), label  # <- flip_wrong_axis


def train_step(tree, state, micro_batches):
    losses, grads = [], []
    for image, label in micro_batches:
        loss = sigmoid_bce(apply(tree, image), label)
        grads.append(torch.autograd.grad(loss, leaves(tree)))
        losses.append(loss.item())
    mean = rebuild(tree, [sum(g) / len(g) for g in zip(*grads)])  # <- accumulation_not_averaged
    with torch.no_grad():
        updates, state = rms_update(mean, state, tree)  # <- accumulation_not_averaged mean_square_from_zero
        tree = tree_map(lambda p, u: (p - u).requires_grad_(), tree, updates)
    return tree, state, sum(losses) / len(losses)


variables = load_variables(sys.argv[1])
opt_state = rms_init(tree_map(torch.Tensor.detach, variables))
source = stream()
losses = []
for _ in range(5):
    variables, opt_state, value = train_step(variables, opt_state, [next(source), next(source)])
    losses.append(value)
print(losses)
