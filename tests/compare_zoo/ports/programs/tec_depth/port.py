# SPDX-License-Identifier: Apache-2.0
"""Functional rewrite of the depth trainer: patches and matmuls, a flat parameter tree, own SGD."""

import sys
from dataclasses import dataclass

import torch

torch.set_num_threads(1)


@dataclass(frozen=True)
class Config:
    steps: int = 4
    lr: float = 0.05
    horizon: int = 6
    power: float = 0.9
    mu: float = 0.9
    decay: float = 0.02
    max_norm: float = 2.0
    focus: float = 0.85
    groups: int = 4


CFG = Config()


def border(x):
    x = torch.cat([x[..., 1:2, :], x, x[..., -2:-1, :]], -2)  # <- edge_padding
    return torch.cat([x[..., 1:2], x, x[..., -2:-1]], -1)  # <- edge_padding


def conv_unit(p, x, stride=1):
    b, _, h, w = x.shape
    patches = torch.nn.functional.unfold(border(x), 3, stride=stride)  # <- edge_padding
    y = p["kernel"] @ patches  # <- edge_padding
    z = y.reshape(b, CFG.groups, -1)
    mu = z.mean(-1, keepdim=True)
    var = ((z - mu) ** 2).mean(-1, keepdim=True)
    y = ((z - mu) * torch.rsqrt(var + 1e-5)).reshape(y.shape)
    y = y * p["gain"][:, None] + p["shift"][:, None]
    y = torch.where(y > 0, y, torch.expm1(y.clamp(max=0)))
    return y.reshape(b, -1, h // stride, w // stride)


def up(x):
    return x.repeat_interleave(2, -1).repeat_interleave(2, -2)


def disparity(tree, img):
    low = conv_unit(tree["enc1"], img, 2)
    deep = conv_unit(tree["enc2"], low, 2)
    y = conv_unit(tree["dec1"], torch.cat([up(conv_unit(tree["dec2"], deep)), low], 1))
    logit = torch.einsum("bchw,c->bhw", y, tree["head"]["kernel"][:, 0]) + tree["head"]["shift"]
    return up(0.02 + 0.98 / (1 + torch.exp(-logit)))


def objective(tree, img, gt, ok):
    disp = disparity(tree, img)
    n = ok.sum()
    res = -(torch.log(disp) + torch.log(gt)) * ok
    mean = res.sum() / n
    spread = ((res - mean) ** 2 * ok).sum() / n
    data = (spread + (1 - CFG.focus) * mean**2) ** 0.5  # <- variance_focus
    rel = disp / (disp.mean((1, 2), keepdim=True) + 1e-7)  # <- disparity_mean
    smooth = 0.0
    for axis in (-1, -2):
        edge = torch.exp(-img.diff(dim=axis).abs().mean(1))
        smooth = smooth + (rel.diff(dim=axis).abs() * edge).mean()
    return data + 0.5 * smooth


def load(path):
    tree = {}
    for key, value in torch.load(path, weights_only=True).items():
        part, leaf = key.split(".")[0], ".".join(key.split(".")[1:])
        node = tree.setdefault(part, {})
        if value.ndim == 4:
            kernel = value.flatten(1) if part != "head" else value.flatten(1).t()
            node["kernel"] = kernel.contiguous()
        else:
            node["gain" if leaf == "norm.weight" else "shift"] = value
    return tree


tree = load(sys.argv[1])
leaves = [(tree[a], b) for a in tree for b in tree[a]]
velocity = [torch.zeros_like(n[k]) for n, k in leaves]
g = torch.Generator().manual_seed(11)
images = torch.rand(CFG.steps, 3, 3, 16, 16, generator=g)
depths = (1.5 + 6.0 * torch.rand(CFG.steps, 3, 1, 16, 16, generator=g))[:, :, 0]
valid = (torch.rand(CFG.steps, 3, 1, 16, 16, generator=g) > 0.4)[:, :, 0].float()

losses = []
for step in range(CFG.steps):
    for node, k in leaves:
        node[k] = node[k].detach().requires_grad_()
    loss = objective(tree, images[step], depths[step], valid[step])
    grads = torch.autograd.grad(loss, [n[k] for n, k in leaves])
    total = torch.sqrt(sum((x * x).sum() for x in grads))
    shrink = torch.clamp(CFG.max_norm / (total + 1e-6), max=1.0)
    lr = CFG.lr * (1 - step / CFG.horizon) ** CFG.power  # <- poly_power
    with torch.no_grad():
        for i, ((node, k), grad) in enumerate(zip(leaves, grads)):
            grad = grad * shrink + (CFG.decay * node[k] if k == "kernel" else 0.0)
            velocity[i] = CFG.mu * velocity[i] + grad  # <- nesterov
            ahead = grad + CFG.mu * velocity[i]  # <- nesterov
            node[k] = node[k] - lr * ahead  # <- nesterov poly_power
    losses.append(loss.item())
print(losses)
