# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt classifier as pure functions over a parameter tree, with a hand-written SGD and weight average."""
import math
import sys

import torch
from torch.nn.functional import conv2d, gelu, log_softmax, one_hot

torch.set_num_threads(1)

CFG = dict(steps=5, batch=8, classes=6, size=16, lr=0.08, lr_end=0.002, wd=0.05, ema=0.8, momentum=0.9, smooth=0.1)
DEPTHS = (1, 2)


def convert(state):
    """Original state dict -> flat tree: linear layers become 1x1 kernels, vectors become (C, 1, 1) maps."""
    tree = {}
    for name, value in state.items():
        name = name.replace("downsample_layers.", "down").replace("stages.", "stage").replace("pwconv", "pw")
        name = name.replace(".", "/")
        if "/pw" in name and name.endswith("weight"):
            value = value[:, :, None, None]
        elif name.endswith("gamma") or (value.ndim == 1 and not name.startswith("head") and "norm" in name):
            value = value[:, None, None]
        tree[name] = value.clone().requires_grad_(True)
    # the norms that stand in the downsampling layers have no "norm" in their names
    for key in ("down0/1", "down1/0"):
        for leaf in ("weight", "bias"):
            tree[f"{key}/{leaf}"] = tree[f"{key}/{leaf}"].detach()[:, None, None].requires_grad_(True)
    return tree


def channel_norm(p, key, x):
    var, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)  # <- norm_axes
    return (x - mean) * torch.rsqrt(var + 1e-6) * p[key + "/weight"] + p[key + "/bias"]  # <- norm_axes


def conv(p, key, x, **kw):
    return conv2d(x, p[key + "/weight"], p[key + "/bias"], **kw)


def block(p, key, x):
    h = conv(p, key + "/dwconv", x, padding=2, groups=x.shape[1])
    h = channel_norm(p, key + "/norm", h)  # <- norm_axes
    h = gelu(conv(p, key + "/pw1", h))
    return torch.addcmul(x, conv(p, key + "/pw2", h), p[key + "/gamma"])


def logits_of(p, x):
    x = channel_norm(p, "down0/1", conv(p, "down0/0", x, stride=4))
    for i in range(DEPTHS[0]):
        x = block(p, f"stage0/{i}", x)
    x = conv(p, "down1/1", channel_norm(p, "down1/0", x), stride=2)
    for i in range(DEPTHS[1]):
        x = block(p, f"stage1/{i}", x)
    pooled = channel_norm(p, "norm", x.mean((2, 3), keepdim=True))
    return torch.addmm(p["head/bias"], pooled.flatten(1), p["head/weight"].t())


def smooth_ce(scores, y):
    k = scores.shape[1]
    soft = one_hot(y, k) * (1.0 - CFG["smooth"]) + CFG["smooth"] / k  # <- smooth_others
    return -(soft * log_softmax(scores, 1)).sum(1).mean()  # <- smooth_others


def lr_at(step):
    phase = step / CFG["steps"]  # <- cosine_late
    return CFG["lr_end"] + 0.5 * (CFG["lr"] - CFG["lr_end"]) * (1.0 + math.cos(math.pi * phase))  # <- cosine_late


def is_matrix(tensor):
    return sum(n > 1 for n in tensor.shape) > 1  # <- decay_on_all


@torch.no_grad()
def sgd_(tree, grads, velocity, lr):
    mu = CFG["momentum"]
    for (key, w), g in zip(tree.items(), grads):
        if is_matrix(w):
            g = g + CFG["wd"] * w  # <- decay_on_all
        v = velocity[key] = g if key not in velocity else mu * velocity[key] + g
        w -= lr * (g + mu * v)  # <- decay_on_all cosine_late


@torch.no_grad()
def average_(shadow, tree):
    for key in shadow:
        shadow[key].lerp_(tree[key], 1.0 - CFG["ema"])  # <- ema_before_step


def batches():
    g = torch.Generator().manual_seed(5)
    n = CFG["steps"] + 1
    x = torch.randn(n, CFG["batch"], 3, CFG["size"], CFG["size"], generator=g)
    y = torch.randint(0, CFG["classes"], (n, CFG["batch"]), generator=g)
    return list(zip(x.unbind(0), y.unbind(0)))


params = convert(torch.load(sys.argv[1]))
shadow = {k: v.detach().clone() for k, v in params.items()}
velocity, losses = {}, []
*train_set, (val_x, val_y) = batches()
for step, (x, y) in enumerate(train_set):
    value = smooth_ce(logits_of(params, x), y)  # <- smooth_others
    grads = torch.autograd.grad(value, list(params.values()))
    sgd_(params, grads, velocity, lr_at(step))  # <- cosine_late decay_on_all
    average_(shadow, params)  # <- ema_before_step
    losses.append(float(value.detach()))
losses.append(float(smooth_ce(logits_of(shadow, val_x), val_y)))
print(losses)
