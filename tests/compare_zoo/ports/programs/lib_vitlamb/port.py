# SPDX-License-Identifier: Apache-2.0
"""The fine-tuning as a team on Flax would write it: weights [in, out], a projection to queries,
keys and values of shape [in, 3, heads, width of a head], LAMB as a function of a tree of tensors.
"""

import math
import re
import sys

import torch
import torch.nn.functional as F

CLASSES, STEPS, DEPTH, HEADS, WIDTH, PATCH = 5, 5, 3, 3, 24, 6


def restore(path):
    tree = {}
    for name, array in torch.load(path).items():
        value = array
        if name.endswith("qkv.weight"):
            value = value.t().reshape(WIDTH, 3, HEADS, -1)
        elif name.endswith("qkv.bias"):
            value = value.reshape(3, HEADS, -1)
        elif name.startswith("patch_embed") and value.dim() == 4:
            value = value.permute(2, 3, 1, 0).reshape(-1, WIDTH)  # rows, columns, channels
        elif value.dim() == 2:
            value = value.t()
        tree[name] = value.clone().requires_grad_()
    return tree


def norm(tree, name, x):
    x = x - x.mean(-1, keepdim=True)
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    return x * tree[f"{name}.weight"] + tree[f"{name}.bias"]


def dense(tree, name, x):
    return x @ tree[f"{name}.weight"] + tree[f"{name}.bias"]


def attention(tree, name, x):
    qkv = torch.einsum("bnc,cthd->tbnhd", x, tree[f"{name}.qkv.weight"])
    q, k, v = qkv + tree[f"{name}.qkv.bias"][:, None, None]
    q, k = norm(tree, f"{name}.q_norm", q), norm(tree, f"{name}.k_norm", k)
    weights = torch.einsum("bnhd,bmhd->bhnm", q, k).mul(q.shape[-1] ** -0.5).softmax(-1)
    return dense(tree, f"{name}.proj", torch.einsum("bhnm,bmhd->bnhd", weights, v).flatten(2))


def apply(tree, images):
    """images: (batch, rows, columns, channels)."""
    b, side = len(images), 24 // PATCH
    x = images.view(b, side, PATCH, side, PATCH, 3).transpose(2, 3).reshape(b, side * side, -1)
    x = dense(tree, "patch_embed.proj", x) + tree["pos_embed"]
    x = torch.cat((tree["cls_token"].expand(b, -1, -1), tree["reg_token"].expand(b, -1, -1), x), 1)
    for i in range(DEPTH):
        block = f"blocks.{i}"
        y = attention(tree, f"{block}.attn", norm(tree, f"{block}.norm1", x))
        x = x + y * tree[f"{block}.ls1.gamma"]
        y = F.gelu(dense(tree, f"{block}.mlp.fc1", norm(tree, f"{block}.norm2", x)))
        x = x + dense(tree, f"{block}.mlp.fc2", y) * tree[f"{block}.ls2.gamma"]
    x = x[:, 3:].mean(1)  # <- registers fc_norm
    return dense(tree, "head", norm(tree, "fc_norm", x))  # <- fc_norm


def soft_labels(labels, share):
    hard = F.one_hot(labels, CLASSES).float()
    smooth = hard * 0.9 + 0.1 / CLASSES  # <- smoothing
    return share * smooth + (1 - share) * smooth.flip(0)  # <- smoothing


def scale_of(name):
    block = re.match(r"blocks\.(\d+)", name)
    if block:
        return 0.75 ** (DEPTH - int(block[1]))  # <- scales
    return 1.0 if name.startswith(("head", "fc_norm")) else 0.75 ** (DEPTH + 1)  # <- scales


def decayed(name):
    return name.endswith("weight") and "norm" not in name


def lamb(tree, grads, first, second, count, rate):
    whole = math.sqrt(sum(g.square().sum().item() for g in grads.values()))
    for name, grad in grads.items():
        g = grad / max(whole, 1.0)
        first[name] = 0.9 * first.get(name, 0.0) + 0.1 * g
        second[name] = 0.999 * second.get(name, 0.0) + 0.001 * g * g
        spread = (second[name] / (1 - 0.999**count)).sqrt() + 1e-5
        change = first[name] / (1 - 0.9**count) / spread
        if decayed(name):  # <- trust
            change = change + 0.05 * tree[name]  # <- trust
            ratio = tree[name].norm() / change.norm()  # <- trust
            change = change * ratio  # <- trust
        tree[name] -= rate * scale_of(name) * change  # <- scales trust


tree = restore(sys.argv[1])
first, second, losses = {}, {}, []
rng = torch.Generator().manual_seed(431)
for step in range(STEPS):
    images = torch.randn(6, 3, 24, 24, generator=rng)
    labels = torch.randint(0, CLASSES, (6,), generator=rng)
    share = torch.rand(1, generator=rng).item()
    mixed = torch.lerp(images.flip(0), images, share).permute(0, 2, 3, 1).contiguous()
    logits = apply(tree, mixed)
    wanted = soft_labels(labels, share)  # <- smoothing
    loss = (logits.logsumexp(1) - (logits * wanted).sum(1)).mean()  # <- smoothing
    grads = dict(zip(tree, torch.autograd.grad(loss, list(tree.values()))))
    rate = 1e-3 + 0.5 * (0.02 - 1e-3) * (1 + math.cos(math.pi * step / STEPS))
    with torch.no_grad():
        lamb(tree, grads, first, second, step + 1, rate)  # <- trust scales
    losses.append(loss.item())
