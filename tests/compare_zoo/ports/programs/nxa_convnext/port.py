# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt V2 as pure functions on channels-last images, with its teacher and momentum as trees."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)


def layer_norm(x, w, b):
    x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w + b


def patchify(x, kernel, bias):
    """A 2x2 convolution of stride 2: space to depth, then one product."""
    n, h, w, c = x.shape
    cells = x.view(n, h // 2, 2, w // 2, 2, c).transpose(2, 3)
    return cells.flatten(3) @ kernel.flatten(0, 2) + bias


def depthwise(x, kernel, bias):
    size, (h, w) = kernel.shape[0], x.shape[1:3]
    reach = size // 2
    wide = nn.functional.pad(x, (0, 0, reach, reach, reach, reach))
    total = bias.expand_as(x)
    for i in range(size):
        for j in range(size):
            total = total + wide[:, i:i + h, j:j + w] * kernel[i, j]  # <- kernel_axes
    return total


def respond(x, gamma, beta):
    energy = x.square().sum(dim=(1, 2), keepdim=True).sqrt()
    relative = energy / (energy.mean(dim=3, keepdim=True) + 1e-6)  # <- grn_mean
    return x * (1 + gamma * relative) + beta  # <- grn_mean


def block(p, x):
    y = layer_norm(depthwise(x, p["dw"], p["dw_b"]), p["ln_w"], p["ln_b"])
    y = nn.functional.gelu(y @ p["in"] + p["in_b"])
    return x + respond(y, p["gamma"], p["beta"]) @ p["out"] + p["out_b"]


def classify(p, x):
    x = patchify(x, p["stem"], p["stem_b"])
    x = block(p["one"], layer_norm(x, p["stem_ln_w"], p["stem_ln_b"]))
    x = patchify(layer_norm(x, p["down_ln_w"], p["down_ln_b"]), p["down"], p["down_b"])
    x = block(p["two"], x)
    x = layer_norm(x.mean(dim=(1, 2)), p["ln_w"], p["ln_b"])  # <- pool_order
    return x @ p["head"] + p["head_b"]


def read(path):
    sd = torch.load(path, weights_only=True)

    def both(mine, theirs, change=torch.t):
        w, b = sd[theirs + ".weight"], sd[theirs + ".bias"]
        return {mine: change(w).clone(), mine + "_b": b.clone()}

    def affine(mine, theirs):
        return {f"{mine}_{kind[0]}": sd[f"{theirs}.{kind}"].clone() for kind in ("weight", "bias")}

    def hwio(t):
        return t.permute(2, 3, 1, 0).contiguous()

    tree = both("stem", "downsample_layers.0.0", hwio) | affine("stem_ln", "downsample_layers.0.1")
    tree |= affine("down_ln", "downsample_layers.1.0") | both("down", "downsample_layers.1.1", hwio)
    for i, name in enumerate(("one", "two")):
        at = f"stages.{i}."
        tree[name] = both("dw", at + "dwconv", lambda t: hwio(t)[:, :, 0])
        tree[name] |= affine("ln", at + "norm")
        tree[name] |= both("in", at + "pwconv1") | both("out", at + "pwconv2")
        tree[name] |= {k: sd[f"{at}grn.{k}"].flatten().clone() for k in ("gamma", "beta")}
    return tree | affine("ln", "norm") | both("head", "head")


def leaves(tree):
    return [x for v in tree.values() for x in (leaves(v) if isinstance(v, dict) else [v])]


def twin(tree):
    return {k: twin(v) if isinstance(v, dict) else v.clone() for k, v in tree.items()}


student = read(sys.argv[1])
teacher = twin(student)
for leaf in leaves(student):
    leaf.requires_grad_()
speed = [torch.zeros_like(leaf) for leaf in leaves(student)]


@torch.no_grad()
def descend(grads, rate=0.05, mu=0.9, decay=1e-3):
    for p, g, s in zip(leaves(student), grads, speed):
        g = g + decay * p
        s.mul_(mu).add_(g)
        p.sub_(rate * (g + mu * s))  # <- nesterov


@torch.no_grad()
def follow(t):
    keep = min(0.95, (2 + t) / (11 + t))  # <- ema_warmup
    for slow, fast in zip(leaves(teacher), leaves(student)):
        slow.lerp_(fast, 1 - keep)  # <- ema_warmup


source, losses = torch.Generator().manual_seed(17), []
for t in range(5):
    x = torch.randn(5, 3, 12, 12, generator=source).permute(0, 2, 3, 1).contiguous()
    y = torch.randint(4, (5,), generator=source)
    guess, calm = classify(student, x), classify(teacher, x.flip(2))  # <- ema_warmup
    entropy = (guess.logsumexp(1) - guess[range(5), y]).mean()
    loss = entropy + min(1.0, (t + 1) / 3) * (guess - calm).square().mean()
    descend(torch.autograd.grad(loss, leaves(student)))  # <- nesterov
    follow(t)
    losses.append(loss.item())
print(losses)
