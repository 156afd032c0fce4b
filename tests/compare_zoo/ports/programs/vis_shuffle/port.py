# SPDX-License-Identifier: Apache-2.0
"""The mobile classifier written as functions of a tree of arrays, with channels last, as it would
be in a functional library.
"""

import sys

import numpy as np
import torch

KINDS, PIXELS, COUNT, EPS = 5, 16, 8, 1e-3  # <- epsilon
CLIPPED = torch.tensor(0.0), torch.tensor(1.0)


def pointwise(x, w):
    return torch.einsum("bhwi,io->bhwo", x, w)


def patches(x, stride):
    """The nine neighbours of each pixel, (b, h', w', c, 3, 3), with zeros around the image."""
    padded = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))
    return padded.unfold(1, 3, stride).unfold(2, 3, stride)


def depthwise(x, w, stride):
    return (patches(x, stride) * w).sum((-2, -1))


def batch_norm(x, p, stats, name, train, eps=EPS):  # <- epsilon
    """Normalises by the batch and keeps averages of its moments, or by those averages."""
    if train:
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2), correction=0)
        n = x.numel() // x.shape[-1]
        old_mean, old_var = stats[name]
        stats[name] = (
            0.99 * old_mean + 0.01 * mean.detach(),  # <- running
            0.99 * old_var + 0.01 * var.detach() * n / (n - 1),
        )
    else:
        mean, var = stats[name]
    scaled = p[f"{name}.scale"] / (var + eps).sqrt()  # <- epsilon
    return (x - mean) * scaled + p[f"{name}.offset"]  # <- epsilon running


def squeeze_excite(x, p, name):
    s = x.mean((1, 2)) @ p[f"{name}.reduce"] + p[f"{name}.reduce_bias"]
    s = s * torch.sigmoid(s)
    s = s @ p[f"{name}.expand"] + p[f"{name}.expand_bias"]
    gate = torch.clip((s + 3) / 6, *CLIPPED)  # <- gate
    return x * gate[:, None, None]  # <- gate


def shuffle(x):
    order = torch.arange(x.shape[-1]).reshape(2, -1).T.reshape(-1)  # <- shuffled
    return x[..., order]  # <- shuffled


def block(x, p, stats, name, stride, train):
    half = x.shape[-1] // 2
    if stride == 1:
        kept, y = x[..., :half], x[..., half:]  # <- halves
    else:
        kept = depthwise(x, p[f"{name}.skip_dw"], stride)
        kept = batch_norm(kept, p, stats, f"{name}.skip_norm1", train)
        kept = pointwise(kept, p[f"{name}.skip_pw"])
        kept = batch_norm(kept, p, stats, f"{name}.skip_norm2", train).relu()
        y = x
    y = pointwise(y, p[f"{name}.pw1"])  # <- halves
    y = batch_norm(y, p, stats, f"{name}.norm1", train).relu()
    y = depthwise(y, p[f"{name}.dw"], stride)
    y = batch_norm(y, p, stats, f"{name}.norm2", train)
    y = squeeze_excite(y, p, f"{name}.se")
    y = pointwise(y, p[f"{name}.pw2"])
    y = batch_norm(y, p, stats, f"{name}.norm3", train).relu()  # <- epsilon
    return shuffle(torch.cat([kept, y], -1))  # <- halves shuffled


def apply(p, stats, x, train):
    x = torch.einsum("bhwcij,ijco->bhwo", patches(x, 2), p["stem"])
    x = batch_norm(x, p, stats, "stem_norm", train).relu()  # <- running
    for i, stride in enumerate((2, 1, 1)):
        x = block(x, p, stats, f"block{i}", stride, train)
    return x.mean((1, 2)) @ p["head"] + p["head_bias"]


def from_torch(old):
    p, stats = {"stem": old["conv_stem.weight"].permute(2, 3, 1, 0)}, {}

    def norm(ours, theirs):
        p[f"{ours}.scale"], p[f"{ours}.offset"] = old[f"{theirs}.weight"], old[f"{theirs}.bias"]
        stats[ours] = old[f"{theirs}.running_mean"], old[f"{theirs}.running_var"]

    def dense(ours, theirs):
        p[ours] = old[f"{theirs}.weight"].flatten(1).T

    norm("stem_norm", "bn1")
    for i in range(3):
        ours, theirs = f"block{i}", f"blocks.{i}"
        if i == 0:
            p[f"{ours}.skip_dw"] = old[f"{theirs}.branch1.0.weight"].squeeze(1)
            norm(f"{ours}.skip_norm1", f"{theirs}.branch1.1")
            dense(f"{ours}.skip_pw", f"{theirs}.branch1.2")
            norm(f"{ours}.skip_norm2", f"{theirs}.branch1.3")
        dense(f"{ours}.pw1", f"{theirs}.branch2.0")
        norm(f"{ours}.norm1", f"{theirs}.branch2.1")
        p[f"{ours}.dw"] = old[f"{theirs}.branch2.3.weight"].squeeze(1)
        norm(f"{ours}.norm2", f"{theirs}.branch2.4")
        for gate in ("reduce", "expand"):
            dense(f"{ours}.se.{gate}", f"{theirs}.branch2.5.conv_{gate}")
            p[f"{ours}.se.{gate}_bias"] = old[f"{theirs}.branch2.5.conv_{gate}.bias"]
        dense(f"{ours}.pw2", f"{theirs}.branch2.6")
        norm(f"{ours}.norm3", f"{theirs}.branch2.7")
    dense("head", "classifier")
    p["head_bias"] = old["classifier.bias"]
    return {k: v.clone() for k, v in p.items()}, stats


def smoothed_loss(logits, labels, amount=0.1):
    wanted = torch.eye(KINDS)[labels] * (1 - amount) + amount / KINDS  # <- smoothed
    return -(wanted * logits.log_softmax(-1)).sum(-1).mean()  # <- smoothed


def examples(rng):
    images = torch.tensor(rng.integers(0, 256, (COUNT, PIXELS, PIXELS, 3)).astype(np.float32))
    images = images - torch.tensor([0.485, 0.456, 0.406]) * 255
    images = images / (torch.tensor([0.229, 0.224, 0.225]) * 255)
    return images, torch.tensor(rng.integers(0, KINDS, COUNT))


def updated(p, grads, squares, speeds, rate):
    new = {}
    for name, g in grads.items():
        decay = 1e-2 if p[name].ndim > 1 else 0.0  # <- decayed
        step = g + decay * p[name] if decay else g  # <- decayed
        squares[name] = 0.9 * squares[name] + 0.1 * step * step  # <- started decayed
        scaled = step * torch.rsqrt(squares[name] + 1e-3)  # <- started decayed
        speeds[name] = 0.9 * speeds[name] + rate * scaled
        new[name] = p[name] - speeds[name]
    return new


def mixed(average, new, keep):
    return {k: keep * average[k] + (1 - keep) * new[k] for k in new}  # <- averaged


params, stats = from_torch(torch.load(sys.argv[1])["model"])
squares = {k: torch.ones_like(v) for k, v in params.items()}  # <- started
speeds = {k: torch.zeros_like(v) for k, v in params.items()}
average, average_stats = params, dict(stats)
rng = np.random.default_rng(72)
losses = []
for step in range(4):
    images, labels = examples(rng)
    leaves = {k: v.requires_grad_() for k, v in params.items()}
    logits = apply(leaves, stats, images, train=True)
    loss = smoothed_loss(logits, labels)
    correct = (logits.argmax(-1) == labels).float().mean().item()
    grads = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))
    with torch.no_grad():
        rate = 0.01 * min(1, (step + 1) / 3)
        params = updated(params, grads, squares, speeds, rate)
        average = mixed(average, params, 0.8)  # <- averaged
        for name, moments in stats.items():
            pair = zip(average_stats[name], moments)
            average_stats[name] = tuple(0.8 * old + 0.2 * new for old, new in pair)
    losses.append(loss.item())
images, labels = examples(rng)
with torch.no_grad():
    logits = apply(average, average_stats, images, train=False)
    losses.append(-logits.log_softmax(-1)[torch.arange(COUNT), labels].mean().item())
