# SPDX-License-Identifier: Apache-2.0
"""The contrast with a queue as pure functions on dictionaries: channels last, convolutions by depth
as sums of shifted images, both encoders given as arguments, the queue a list that is rolled.
"""

import sys
from functools import partial

import torch
from torch.nn.functional import pad

B, LENGTH, SIDE, EMA, TEMPERATURE = 4, 12, 10, 0.9, 0.2


def ln(x, w, name):
    mean = x.mean(-1, keepdim=True)
    var = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) / torch.sqrt(var + 1e-6) * w[f"{name}/scale"] + w[f"{name}/offset"]


def depthwise(x, kernel, bias):
    """Five by five, SAME; kernel is [5, 5, channels]"""
    h, w = x.shape[1:3]
    x = pad(x, (0, 0, 2, 2, 2, 2))
    parts = [x[:, i : i + h, j : j + w] * kernel[i, j] for i in range(5) for j in range(5)]
    return torch.stack(parts).sum(0) + bias


def block(w, x, name):
    y = depthwise(x, w[f"{name}/depth/w"], w[f"{name}/depth/b"])
    y = ln(y, w, f"{name}/norm") @ w[f"{name}/wide/w"] + w[f"{name}/wide/b"]
    y = torch.nn.functional.gelu(y) @ w[f"{name}/narrow/w"] + w[f"{name}/narrow/b"]
    return x + y * w[f"{name}/gamma"]


def encode(w, images):
    n = len(images)
    x = images.unfold(1, 2, 2).unfold(2, 2, 2).reshape(n, SIDE // 2, SIDE // 2, -1)
    x = ln(x @ w["stem/w"] + w["stem/b"], w, "stem_norm")
    for i in range(2):
        x = block(w, x, f"block{i}")
    x = x.flatten(1, 2).mean(1)
    x = (x @ w["proj0/w"] + w["proj0/b"]).relu() @ w["proj1/w"] + w["proj1/b"]
    return x * torch.rsqrt((x**2).sum(-1, keepdim=True))  # <- unit


def haiku_weights(old):
    w = {
        # rows, columns and channels of a patch come as unfold gives them
        "stem/w": old["stem.weight"].flatten(1).T,
        "stem/b": old["stem.bias"],
        "stem_norm/scale": old["stem_norm.weight"],
        "stem_norm/offset": old["stem_norm.bias"],
    }
    for i in range(2):
        w[f"proj{i}/w"], w[f"proj{i}/b"] = old[f"proj.{2 * i}.weight"].T, old[f"proj.{2 * i}.bias"]
        there, here = f"blocks.{i}", f"block{i}"
        w[f"{here}/depth/w"] = old[f"{there}.dwconv.weight"].squeeze(1).permute(1, 2, 0)
        w[f"{here}/depth/b"] = old[f"{there}.dwconv.bias"]
        w[f"{here}/norm/scale"] = old[f"{there}.norm.weight"]
        w[f"{here}/norm/offset"] = old[f"{there}.norm.bias"]
        w[f"{here}/gamma"] = old[f"{there}.gamma"]
        for name, conv in (("wide", "pwconv1"), ("narrow", "pwconv2")):
            w[f"{here}/{name}/w"] = old[f"{there}.{conv}.weight"].flatten(1).T
            w[f"{here}/{name}/b"] = old[f"{there}.{conv}.bias"]
    return {k: v.clone() for k, v in w.items()}


def contrast(online, keys, queue, images):
    q = encode(online, images)
    positive = torch.einsum("nc,nc->n", q, keys)
    negative = torch.einsum("nc,kc->nk", q, queue)  # <- written
    scores = torch.cat((negative, positive[:, None]), 1) / TEMPERATURE
    return (torch.logsumexp(scores, 1) - positive / TEMPERATURE).mean()


def lars(w, g, trace):
    if w.ndim > 1:
        g = g + 1e-2 * w  # <- trust
        ratio = 0.02 * torch.sqrt((w * w).sum()) / torch.sqrt((g * g).sum())  # <- trust
        g = ratio * g  # <- trust
    trace = g + 0.9 * trace  # <- trust
    return w - trace, trace


def views(rng):
    images = torch.rand(B, 3, SIDE, SIDE, generator=rng).permute(0, 2, 3, 1)
    noise = torch.randn(2, B, 3, SIDE, SIDE, generator=rng).permute(0, 1, 3, 4, 2) * 0.3
    return images + noise[0], torch.flip(images, (2,)) + noise[1]  # <- turned


saved = torch.load(sys.argv[1])
online = haiku_weights(saved["encoder"])
target = dict(online)
trace = {k: torch.zeros_like(v) for k, v in online.items()}
queue = saved["queue"].T
rng = torch.Generator().manual_seed(212)
losses = []
for _ in range(5):
    one, two = views(rng)
    target = {k: EMA * v + (1 - EMA) * online[k] for k, v in target.items()}  # <- late
    keys = encode(target, two)  # <- late turned
    step = torch.func.grad_and_value(partial(contrast, keys=keys, queue=queue, images=one))
    grads, loss = step(online)
    new = {k: lars(online[k], grads[k], trace[k]) for k in online}  # <- trust
    online = {k: w for k, (w, _) in new.items()}
    trace = {k: t for k, (_, t) in new.items()}
    queue = torch.cat((queue[B:], keys))  # <- written
    losses.append(loss.item())
