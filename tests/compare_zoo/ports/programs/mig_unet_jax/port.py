# SPDX-License-Identifier: Apache-2.0
"""The diffusion step as JAX has it: trees of parameters, kernels HWIO, images NHWC, pure functions
and torch.func.grad_and_value.
"""

import sys

import torch
from torch.func import grad_and_value
from torch.nn.functional import conv2d
from torch.utils import _pytree as pytree

T_MAX, CH, T_DIM, RES = 50, 8, 16, 8


def dense(p, x):
    return torch.einsum("...i,io->...o", x, p["kernel"]) + p["bias"]


def conv(p, x, stride=1, padding=((1, 1), (1, 1))):
    """lax.conv_general_dilated with NHWC, HWIO, NHWC"""
    (top, bottom), (left, right) = padding
    x = torch.nn.functional.pad(x, (0, 0, left, right, top, bottom))  # <- padding
    y = conv2d(x.permute(0, 3, 1, 2), p["kernel"].permute(3, 2, 0, 1), stride=stride)  # <- padding
    return y.permute(0, 2, 3, 1) + p["bias"]


def conv_transpose(p, x):
    """Two by two without overlap: a product and a rearrangement."""
    n, h, w, _ = x.shape
    y = torch.einsum("nhwi,abio->nhawbo", x, p["kernel"])  # <- flipped
    return y.reshape(n, 2 * h, 2 * w, -1) + p["bias"]


def group_norm(p, x, groups=4):
    n, h, w, c = x.shape
    g = x.reshape(n, h * w, groups, c // groups)
    mean = g.mean((1, 3), keepdim=True)
    var = (g - mean).square().mean((1, 3), keepdim=True)
    return ((g - mean) / (var + 1e-5).sqrt()).reshape(n, h, w, c) * p["scale"] + p["bias"]


def silu(x):
    return x * x.sigmoid()


def res_block(p, x, emb):
    h = conv(p["conv1"], silu(group_norm(p["norm1"], x)))
    scale, shift = dense(p["emb"], silu(emb))[:, None, None].split(h.shape[-1], dim=-1)
    h = torch.addcmul(shift, group_norm(p["norm2"], h), scale + 1)
    same = dense(p["skip"], x) if "skip" in p else x
    return same + conv(p["conv2"], silu(h))


def apply(params, x, t):
    rate = 1e4 ** -(torch.arange(T_DIM // 2) / (T_DIM // 2))  # <- sinusoid
    angle = t[:, None] * rate
    emb = torch.cat((angle.cos(), angle.sin()), -1)  # <- sinusoid
    emb = dense(params["time"]["2"], silu(dense(params["time"]["0"], emb)))  # <- sinusoid
    kept = res_block(params["down1"], conv(params["inp"], x), emb)
    h = conv(params["pool"], kept, stride=2)  # <- padding
    h = res_block(params["down2"], h, emb)
    h = torch.cat((conv_transpose(params["up"], h), kept), -1)  # <- flipped
    h = res_block(params["up1"], h, emb)
    return conv(params["out"], silu(group_norm(params["norm"], h)))


def to_tree(state):
    tree = {}
    for name, value in state.items():
        *path, leaf = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        if leaf == "bias":
            node["bias"] = value
        elif value.dim() == 1:
            node["scale"] = value
        elif value.dim() == 2 or path[-1] == "skip":
            node["kernel"] = value.flatten(1).t()
        elif path[-1] == "up":
            node["kernel"] = value.permute(2, 3, 0, 1)  # <- flipped
        else:
            node["kernel"] = value.permute(2, 3, 1, 0)
    return tree


def sample(key):
    images = (2 * torch.rand(4, 3, RES, RES, generator=key) - 1).permute(0, 2, 3, 1)
    t = torch.randint(T_MAX, (4,), generator=key)
    noise = torch.randn(4, 3, RES, RES, generator=key).movedim(1, -1)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.05, T_MAX), 0)[t].reshape(-1, 1, 1, 1)
    return images * kept**0.5 + noise * (1 - kept) ** 0.5, t, noise  # <- noising


def loss_fn(params, noisy, t, noise):
    return torch.mean((apply(params, noisy, t) - noise) ** 2)


params = to_tree(torch.load(sys.argv[1]))
ema = params
mu = nu = pytree.tree_map(torch.zeros_like, params)
key = torch.Generator().manual_seed(122)
losses = []
for count in range(1, 4):
    grads, loss = grad_and_value(loss_fn)(params, *sample(key))
    mu = pytree.tree_map(lambda m, g: 0.9 * m + 0.1 * g, mu, grads)
    nu = pytree.tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, nu, grads)
    c1, c2 = 1 - 0.9**count, 1 - 0.999**count
    params = pytree.tree_map(
        lambda p, m, v: p - 2e-3 * (m / c1) / ((v / c2).sqrt() + 1e-3), params, mu, nu
    )
    ema = pytree.tree_map(lambda e, p: 0.8 * e + 0.2 * p, ema, params)  # <- averaged
    losses.append(loss.item())
losses.append(loss_fn(ema, *sample(key)).item())  # <- averaged
