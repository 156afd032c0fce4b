# SPDX-License-Identifier: Apache-2.0
"""A little EfficientNet in the manner of its TensorFlow code: scopes, channels last, kernels
[h, w, in, out], SAME padding, RMSProp whose mean squares begin with ones.
"""

import math
import sys

import torch
import torch.nn.functional as F

# scope, kernel, stride, channels in and out, expansion, squeezed channels
BLOCKS = [
    ("blocks_0", 3, 1, 8, 8, 1, 2),
    ("blocks_1", 5, 2, 8, 16, 3, 2),
    ("blocks_2", 5, 1, 16, 16, 3, 4),
    ("blocks_3", 3, 2, 16, 20, 2, 4),
]
variables, moving = {}, {}


def kernel(scope, *shape):
    fan = math.prod(shape) / shape[-1] if "depthwise" not in scope else shape[0] * shape[1]
    variables[f"{scope}/kernel"] = torch.randn(*shape) * (2 / fan) ** 0.5


def norm(scope, width):
    variables[f"{scope}/gamma"] = 0.7 + 0.6 * torch.rand(width)
    variables[f"{scope}/beta"] = 0.2 * torch.randn(width)
    moving[f"{scope}/moving_mean"] = torch.zeros(width)
    moving[f"{scope}/moving_variance"] = torch.ones(width)


def build():
    kernel("stem/conv2d", 3, 3, 3, 8)
    norm("stem/bn", 8)
    for scope, k, _, c_in, c_out, grow, squeezed in BLOCKS:
        middle = c_in * grow
        if grow > 1:
            kernel(f"{scope}/expand", 1, 1, c_in, middle)
            norm(f"{scope}/expand_bn", middle)
        kernel(f"{scope}/depthwise", k, k, middle, 1)
        norm(f"{scope}/depthwise_bn", middle)
        for part, *shape in (("reduce", middle, squeezed), ("excite", squeezed, middle)):
            kernel(f"{scope}/{part}", 1, 1, *shape)
            variables[f"{scope}/{part}/bias"] = 0.1 * torch.randn(shape[1])
        kernel(f"{scope}/project", 1, 1, middle, c_out)
        norm(f"{scope}/project_bn", c_out)
    kernel("head/conv2d", 1, 1, 20, 32)
    norm("head/bn", 32)
    kernel("head/dense", 32, 5)
    variables["head/dense/bias"] = torch.zeros(5)


def conv(x, scope, stride=1, depthwise=False):
    w = variables[f"{scope}/kernel"]
    size = len(w)
    need = max((-(-x.shape[1] // stride) - 1) * stride + size - x.shape[1], 0)  # <- same
    sides = (need // 2, need - need // 2)  # <- same
    x = F.pad(x, (0, 0) + sides * 2).permute(0, 3, 1, 2)  # <- same
    w = w.permute(2, 3, 0, 1) if depthwise else w.permute(3, 2, 0, 1)  # <- depthwise
    y = F.conv2d(x, w, stride=stride, groups=x.shape[1] if depthwise else 1)  # <- same depthwise
    y = y.permute(0, 2, 3, 1)
    return y + variables[f"{scope}/bias"] if f"{scope}/bias" in variables else y


def batch_norm(x, scope, training):
    if training:
        var, mean = torch.var_mean(x, dim=(0, 1, 2), correction=0)
        n = x[..., 0].numel()
        for name, now in (("moving_mean", mean), ("moving_variance", var * n / (n - 1))):
            old = moving[f"{scope}/{name}"]
            moving[f"{scope}/{name}"] = old - 0.1 * (old - now.detach())
    else:
        mean = moving[f"{scope}/moving_mean"]  # <- evaluated
        var = moving[f"{scope}/moving_variance"]  # <- evaluated
    inv = torch.rsqrt(var + 1e-3) * variables[f"{scope}/gamma"]  # <- epsilon
    return x * inv + (variables[f"{scope}/beta"] - mean * inv)  # <- epsilon evaluated


def block(x, plan, training):
    scope, _, stride, c_in, c_out, grow, _ = plan
    y = x
    if grow > 1:
        y = F.silu(batch_norm(conv(y, f"{scope}/expand"), f"{scope}/expand_bn", training))
    y = conv(y, f"{scope}/depthwise", stride, depthwise=True)  # <- depthwise same
    y = F.silu(batch_norm(y, f"{scope}/depthwise_bn", training))
    gate = F.silu(conv(y.mean((1, 2), keepdim=True), f"{scope}/reduce"))
    y = torch.sigmoid(conv(gate, f"{scope}/excite")) * y
    y = batch_norm(conv(y, f"{scope}/project"), f"{scope}/project_bn", training)
    return y + x if stride == 1 and c_in == c_out else y


def network(x, training):
    x = F.silu(batch_norm(conv(x, "stem/conv2d", 2), "stem/bn", training))  # <- same epsilon
    for plan in BLOCKS:
        x = block(x, plan, training)
    x = F.silu(batch_norm(conv(x, "head/conv2d"), "head/bn", training)).mean((1, 2))
    return x @ variables["head/dense/kernel"] + variables["head/dense/bias"]


torch.manual_seed(390)
build()
torch.save({**variables, **moving}, sys.argv[1])
mean_square = {k: torch.ones_like(v) for k, v in variables.items()}  # <- rmsprop
momentum = {k: torch.zeros_like(v) for k, v in variables.items()}
generator = torch.Generator().manual_seed(391)
losses = []
for step in range(5):
    images = torch.rand(8, 32, 32, 3, generator=generator) * 2 - 1
    labels = F.one_hot(torch.randint(0, 5, (8,), generator=generator), 5)
    training = step < 4  # <- evaluated
    for v in variables.values():
        v.requires_grad_(training)
    logits = network(images, training)  # <- evaluated
    entropy = -((labels * 0.9 + 0.02) * logits.log_softmax(-1)).sum(-1).mean()
    losses.append(entropy.item())
    if training:
        l2 = sum(v.square().sum() for k, v in variables.items() if k.endswith("kernel")) / 2
        grads = torch.autograd.grad(entropy + 1e-3 * l2, list(variables.values()))
        with torch.no_grad():
            for (k, v), g in zip(variables.items(), grads):
                mean_square[k] += 0.1 * (g * g - mean_square[k])  # <- rmsprop
                step_size = 0.02 * g / torch.sqrt(mean_square[k] + 1e-3)  # <- rmsprop
                momentum[k] = 0.9 * momentum[k] + step_size  # <- rmsprop
                variables[k] = v - momentum[k]  # <- rmsprop
