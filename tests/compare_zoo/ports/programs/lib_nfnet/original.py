# SPDX-License-Identifier: Apache-2.0
"""A normalizer-free network as its paper's code has it: channels last, kernels [h, w, in, out],
scaled weight standardization, adaptive gradient clipping and averaged weights.
"""

import math
import sys

import torch
import torch.nn.functional as F

ALPHA, GAMMA, CLASSES = 0.25, 1.7015043497085571, 5
LOWER = 1 / (1 + ALPHA**2) ** 0.5
PLAN = [("0.0", 16, 16, 2, 1.0), ("1.0", 16, 24, 2, LOWER), ("1.1", 24, 24, 1, LOWER)]
params = {}


def create(name, size, c_in, c_out):
    params[f"{name}/w"] = torch.randn(size, size, c_in, c_out)
    params[f"{name}/gain"] = 0.8 + 0.4 * torch.rand(1, 1, 1, c_out)
    params[f"{name}/bias"] = 0.1 * torch.randn(c_out)


def create_linear(name, d_in, d_out):
    params[f"{name}/w"] = torch.randn(d_in, d_out) / d_in**0.5
    params[f"{name}/bias"] = 0.1 * torch.randn(d_out)


def ws_conv(p, name, x, stride=1):
    w = p[f"{name}/w"]
    mean = w.mean(dim=(0, 1, 2), keepdim=True)
    var = (w - mean).square().mean(dim=(0, 1, 2), keepdim=True)
    fan_in = w[..., 0].numel()
    w = (w - mean) * torch.rsqrt(fan_in * (var + 1e-5)) * p[f"{name}/gain"]  # <- kernels
    need = max((math.ceil(x.shape[1] / stride) - 1) * stride + len(w) - x.shape[1], 0)  # <- same
    low, high = need // 2, need - need // 2  # <- same
    x = F.pad(x, (0, 0, low, high, low, high)).permute(0, 3, 1, 2)  # <- same
    y = F.conv2d(x, w.permute(3, 2, 0, 1), p[f"{name}/bias"], stride)  # <- same kernels
    return y.permute(0, 2, 3, 1)


def act(x):
    return F.gelu(x) * GAMMA


def squeeze_excite(p, name, x):
    h = x.mean(dim=(1, 2))
    h = torch.relu(h @ p[f"{name}/down/w"] + p[f"{name}/down/bias"])
    h = torch.sigmoid(h @ p[f"{name}/up/w"] + p[f"{name}/up/bias"])
    return 2.0 * h[:, None, None] * x


def forward(p, images):
    x = ws_conv(p, "stem", images, 2)  # <- kernels same
    for name, c_in, c_out, stride, beta in PLAN:
        out = act(x) * beta
        if f"{name}/shortcut/w" in p:
            b, h, w, c = out.shape
            small = out.reshape(b, h // 2, 2, w // 2, 2, c).mean(dim=(2, 4))
            x = ws_conv(p, f"{name}/shortcut", small)
        out = act(ws_conv(p, f"{name}/conv1", out))
        out = act(ws_conv(p, f"{name}/conv2", out, stride))
        out = act(ws_conv(p, f"{name}/conv2b", out))
        out = squeeze_excite(p, f"{name}/se", ws_conv(p, f"{name}/conv3", out))
        x = x + ALPHA * p[f"{name}/skip_gain"] * out  # <- alpha
    return act(x).mean(dim=(1, 2)) @ p["head/w"] + p["head/bias"]


def clip_unitwise(name, w, grad):
    axes = tuple(range(w.dim())) if w.dim() < 2 else tuple(range(w.dim() - 1))
    size = w.square().sum(axes, keepdim=True).sqrt().clamp(min=1e-3)
    steep = grad.square().sum(axes, keepdim=True).sqrt()
    limit = 0.02 * size
    return torch.where(steep > limit, grad * limit / steep.clamp(min=1e-6), grad)  # <- agc


torch.manual_seed(360)
create("stem", 3, 3, 16)
for name, c_in, c_out, stride, _ in PLAN:
    create(f"{name}/conv1", 1, c_in, c_out // 2)
    create(f"{name}/conv2", 3, c_out // 2, c_out // 2)
    create(f"{name}/conv2b", 3, c_out // 2, c_out // 2)
    create(f"{name}/conv3", 1, c_out // 2, c_out)
    if stride == 2:
        create(f"{name}/shortcut", 1, c_in, c_out)
    create_linear(f"{name}/se/down", c_out, 8)
    create_linear(f"{name}/se/up", 8, c_out)
    params[f"{name}/skip_gain"] = torch.rand(())
create_linear("head", 24, CLASSES)
torch.save(params, sys.argv[1])

average = {name: w.clone() for name, w in params.items()}
momentum = {name: torch.zeros_like(w) for name, w in params.items()}
generator = torch.Generator().manual_seed(361)
losses = []
for step in range(5):
    images = torch.randn(6, 32, 32, 3, generator=generator)
    labels = torch.randint(0, CLASSES, (6,), generator=generator)
    if step == 4:
        losses.append(F.cross_entropy(forward(average, images), labels).item())  # <- ema
        break
    for w in params.values():
        w.requires_grad_()
    loss = F.cross_entropy(forward(params, images), labels)
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    with torch.no_grad():
        for name, w in params.items():
            g = grads[name] if name.startswith("head") else clip_unitwise(name, w, grads[name])
            momentum[name] = 0.9 * momentum[name] + g
            params[name] = w - 0.1 * momentum[name]  # <- agc
            average[name] = 0.8 * average[name] + 0.2 * params[name]  # <- ema
    losses.append(loss.item())
