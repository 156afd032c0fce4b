# SPDX-License-Identifier: Apache-2.0
"""QAT on the new toolkit: registry of ops, time-last matmuls over unfolded frames, explicit STE."""

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

torch.set_num_threads(1)
OPS = {}


def op(fn):
    OPS[fn.__name__] = fn
    return fn


@dataclass
class Layer:
    kernel: Tensor  # (taps * cin, cout)
    offset: Tensor
    keep: Tensor
    ceiling: float
    hop: int = 1
    taps: int = 3


@op
def snap_weight(w, qmax):
    peak = w.detach().abs().amax(0, keepdim=True).clamp(min=1e-8)  # <- channel_scale
    unit = peak / qmax  # <- channel_scale
    grid = (w.detach() / unit).round().clamp(-qmax - 1, qmax) * unit
    return w + (grid - w.detach())


@op
def snap_activation(x, layer):
    layer.ceiling = torch.lerp(layer.ceiling, x.detach().max(), 0.2)  # <- range_momentum
    unit = layer.ceiling / 63  # <- range_momentum
    steps = (x.detach() / unit).round()
    inside = (steps <= 63).float()  # <- saturated_gradient
    grid = steps.clamp(max=63) * unit
    return grid + inside * (x - x.detach())  # <- saturated_gradient


@op
def frames(x, taps, hop):
    """(B, T, C) to (B, T, taps*C); every frame sees the past only."""
    reach = (taps - 1) * hop
    x = torch.cat([x.new_zeros(len(x), reach, x.size(2)), x], 1)  # <- causal_side
    n = x.size(1) - reach
    return torch.cat([x[:, i * hop : i * hop + n] for i in range(taps)], 2)  # <- causal_side


def conv(layer, kernel, offset, x):
    w = OPS["snap_weight"](torch.where(layer.keep, kernel, 0.0), 7)
    cols = OPS["frames"](x, layer.taps, layer.hop)
    return OPS["snap_activation"]((cols @ w + offset).clamp(min=0), layer)


def loss_fn(tensors, mels, words):
    x = mels.transpose(1, 2)
    for i, layer in enumerate(stack):
        x = conv(layer, tensors[2 * i], tensors[2 * i + 1], x)
    logits = (x[:, -1] + x.sum(1) / x.size(1)) @ OPS["snap_weight"](tensors[4], 127) + tensors[5]
    lse = torch.logsumexp(logits, 1, keepdim=True)
    nll = lse - logits
    hard = -torch.expm1(-nll)
    cost = hard.pow(1.5) * nll
    return (0.9 * cost.take_along_dim(words[:, None], 1)[:, 0] + 0.1 * cost.mean(1)).mean()


sd = torch.load(sys.argv[1], weights_only=True)
stack = []
for name, hop in (("c1", 1), ("c2", 2)):
    columns = lambda t: t.permute(2, 1, 0).flatten(0, 1)
    stack.append(
        Layer(
            columns(sd[f"{name}.weight"]),
            sd[f"{name}.bias"],
            columns(sd[f"{name}.mask"]) > 0,
            sd[f"{name}.observer.hi"],
            hop,
        )
    )
tensors = [t for layer in stack for t in (layer.kernel, layer.offset)]
tensors += [sd["fc.weight"].t(), sd["fc.bias"]]
heavy = [None] * len(tensors)
gen = torch.Generator().manual_seed(17)
losses = []
for it in range(5):
    mels = torch.randn(8, 6, 15, generator=gen)
    words = torch.randint(0, 5, (8,), generator=gen)
    tensors = [t.detach().requires_grad_() for t in tensors]
    loss = loss_fn(tensors, mels, words)
    grads = torch.autograd.grad(loss, tensors)
    with torch.no_grad():
        for i, (t, grad) in enumerate(zip(tensors, grads)):
            grad = grad + 1e-3 * t
            heavy[i] = grad if heavy[i] is None else 0.8 * heavy[i] + 0.5 * grad  # <- dampening
            tensors[i] = t - 0.3 * heavy[i]  # <- dampening
    losses.append(loss.item())
print(losses)
