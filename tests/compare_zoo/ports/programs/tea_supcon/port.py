# SPDX-License-Identifier: Apache-2.0
"""Supervised contrastive learning in the manner of TensorFlow: channels last, explicit padding,
batch norm as moments, positives by sums of a class, LARS over lists with foreach functions.
"""

import sys

import torch
import torch.nn.functional as F

T, BASE, CLASSES, ROWS = 0.1, 0.07, 3, 8


def variables(path):
    """Kernels [h, w, in, out] or [in, out]; gammas and betas."""
    found = {}
    for name, value in torch.load(path).items():
        if "running" in name or "num_batches" in name:
            continue
        turned = value.permute(2, 3, 1, 0) if value.dim() == 4 else value.t()
        found[name.replace("block.", "")] = turned.contiguous().clone().requires_grad_()
    return found


def conv2d(x, kernel, stride=1):
    """Patches times kernel."""
    side = kernel.shape[0]
    if side == 3:
        x = F.pad(x, (0, 0, 1, 1, 1, 1))  # <- padded
    patches = x.unfold(1, side, stride).unfold(2, side, stride)  # <- padded
    return torch.tensordot(patches, kernel, ([4, 5, 3], [0, 1, 2]))  # <- padded


def batch_norm(w, name, x):
    variance, mean = torch.var_mean(x, (0, 1, 2), correction=0)  # <- views
    scale = w[f"{name}.weight"] * torch.rsqrt(variance + 1e-5)
    return x * scale + (w[f"{name}.bias"] - mean * scale)  # <- views


def embed(w, images):
    x = batch_norm(w, "bn", conv2d(images, w["conv.weight"])).relu()
    y = batch_norm(w, "bn1", conv2d(x, w["conv1.weight"], 2)).relu()  # <- padded
    y = batch_norm(w, "bn2", conv2d(y, w["conv2.weight"]))
    x = batch_norm(w, "shortcut.1", conv2d(x, w["shortcut.0.weight"], 2))
    x = (x + y).relu().mean((1, 2))
    x = (x @ w["head.0.weight"] + w["head.0.bias"]).clamp(min=0)
    x = x @ w["head.2.weight"] + w["head.2.bias"]
    return x / x.square().sum(1, keepdim=True).sqrt()


def contrast(z, labels):
    """Positives of a row: the sum of its class less itself."""
    member = F.one_hot(labels, CLASSES).float()
    others = member @ (member.T @ z) - z
    count = (member @ member.sum(0)) - 1
    near = (z * others).sum(1) / count / T
    logits = (z @ z.T) / T
    logits = logits.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))  # <- itself
    spread = logits.logsumexp(1)  # <- itself
    return (spread - near).mean() * (T / BASE)  # <- base


def lars(weights, grads, buffers, rate):
    matrices = [i for i, p in enumerate(weights) if p.dim() > 1]  # <- excluded
    adapted = [weights[i] for i in matrices]
    updates = torch._foreach_add([grads[i] for i in matrices], adapted, alpha=1e-2)  # <- excluded
    sizes = torch._foreach_norm(adapted)
    ratios = torch._foreach_div(sizes, torch._foreach_norm(updates))
    torch._foreach_mul_(ratios, 0.02)
    torch._foreach_mul_(updates, ratios)  # <- excluded
    grads = list(grads)
    for i, update in zip(matrices, updates):
        grads[i] = update
    torch._foreach_mul_(buffers, 0.9)
    torch._foreach_add_(buffers, grads)  # <- excluded
    torch._foreach_add_(weights, buffers, alpha=-rate)


w = variables(sys.argv[1])
weights = list(w.values())
buffers = [torch.zeros_like(p) for p in weights]
rng = torch.Generator().manual_seed(112)
losses = []
for step in range(4):
    labels = torch.randint(0, CLASSES, (ROWS,), generator=rng)
    images = torch.randn(ROWS, 3, 10, 10, generator=rng).permute(0, 2, 3, 1)
    images = images + (labels[:, None, None, None] - 1)
    noise = 0.3 * torch.randn(2, ROWS, 3, 10, 10, generator=rng).permute(0, 1, 3, 4, 2)
    views = torch.stack((images, images.flip(2))) + noise  # <- views
    z = embed(w, views.flatten(0, 1))  # <- views
    loss = contrast(z, labels.repeat(2))
    grads = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        lars(weights, grads, buffers, 0.5 * (1 - step / 6) ** 2)
    losses.append(loss.item())
