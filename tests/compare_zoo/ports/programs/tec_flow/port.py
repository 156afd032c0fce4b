# SPDX-License-Identifier: Apache-2.0
"""Flow estimator, tensor-program style: separable hat-kernel look-up, resize by matrices."""

import sys
from dataclasses import dataclass

import torch

torch.set_num_threads(1)


@dataclass(frozen=True)
class FlowCfg:
    radius: int = 1
    rounds: int = 3
    decay: float = 0.8
    far: float = 4.0
    lr: float = 0.01
    lr_features: float = 0.005


CFG = FlowCfg()
conv = torch.nn.functional.conv2d


def hat(position, size):
    return (1 - (position[..., None] - torch.arange(size)).abs()).clamp(min=0)


def resize_matrix(n, m):
    return hat(torch.arange(m) * ((n - 1) / (m - 1)), n)


def encode(p, name, images):
    y = conv(images * 2 - 1, p[name + "/stem"], stride=2, padding=1)
    mean = y.mean((2, 3), keepdim=True)
    spread = (y * y).mean((2, 3), keepdim=True) - mean * mean
    y = ((y - mean) / torch.sqrt(spread + 1e-5)).clamp(min=0)
    return torch.einsum("bchw,cd->bhwd", y, p[name + "/mix"]) + p[name + "/mix_b"]


def look_up(volume, x, y):
    """volume (B,H,W,h,w); x, y (B,H,W) are positions in the second frame."""
    offs = torch.arange(-CFG.radius, CFG.radius + 1)
    wx = hat(x[..., None] + offs, volume.shape[-1])
    wy = hat(y[..., None] + offs, volume.shape[-2])
    rows = torch.einsum("bpqhw,bpqih->bpqiw", volume, wy)  # <- window_order
    return torch.einsum("bpqiw,bpqjw->bpqji", rows, wx).flatten(3)  # <- window_order


def refine(p, im1, im2):
    both = encode(p, "match", torch.cat([im1, im2]))
    one, two = both.chunk(2)
    volume = torch.einsum("bpqc,bhwc->bpqhw", one, two) * one.shape[-1] ** -0.5
    ctx = encode(p, "context", im1).clamp(min=0)
    h, w = ctx.shape[1:3]
    rows, cols = resize_matrix(h, 2 * h), resize_matrix(w, 2 * w)
    flow = torch.zeros(len(im1), h, w, 2)
    for _ in range(CFG.rounds):
        held = flow.detach()  # <- coordinate_stop
        cost = look_up(
            volume,
            held[..., 0] + torch.arange(w),  # <- coordinate_stop
            held[..., 1] + torch.arange(h)[:, None],
        )  # <- coordinate_stop
        x = torch.cat([cost, ctx, held], -1).permute(0, 3, 1, 2)  # <- coordinate_stop
        x = conv(x, p["motion/w"], p["motion/b"], padding=1).tanh()
        flow = held + conv(x, p["delta/w"], p["delta/b"], padding=1).permute(0, 2, 3, 1)
        yield torch.einsum("ih,jw,bhwc->bcij", rows, cols, flow * 2)  # <- flow_upscale


def loss_fn(p, im1, im2, gt, trust):
    usable = ((trust >= 0.5) & (gt.square().sum(1) < CFG.far**2)).float()[:, None]
    stack = torch.stack(list(refine(p, im1, im2)))
    per_round = ((stack - gt).abs() * usable).mean((1, 2, 3, 4))
    fade = CFG.decay ** torch.arange(CFG.rounds).flip(0)  # <- sequence_gamma
    return fade @ per_round  # <- sequence_gamma


def load(path):
    sd = torch.load(path, weights_only=True)
    out = {}
    for new, old in (("match", "fnet"), ("context", "cnet")):
        out[new + "/stem"] = sd[f"{old}.conv1.weight"]
        out[new + "/mix"] = sd[f"{old}.conv2.weight"].flatten(1).t()
        out[new + "/mix_b"] = sd[f"{old}.conv2.bias"]
    for name in ("motion", "delta"):
        out[name + "/w"], out[name + "/b"] = sd[f"{name}.weight"], sd[f"{name}.bias"]
    return out


params = load(sys.argv[1])
m = {k: torch.zeros_like(v) for k, v in params.items()}
bound = {k: torch.zeros_like(v) for k, v in params.items()}
gen = torch.Generator().manual_seed(29)
losses = []
for t in range(1, 5):
    im1 = torch.rand(2, 3, 12, 16, generator=gen)
    gt = torch.randn(2, 2, 12, 16, generator=gen) + torch.randn(2, 2, 1, 1, generator=gen) * 2
    im2 = 0.8 * im1.roll((1, 2), (2, 3)) + 0.2 * torch.rand(2, 3, 12, 16, generator=gen)
    trust = torch.rand(2, 12, 16, generator=gen) + 0.3
    params = {k: v.detach().requires_grad_() for k, v in params.items()}
    loss = loss_fn(params, im1, im2, gt, trust)
    grads = torch.autograd.grad(loss, list(params.values()))
    norm = torch.cat([g.flatten() for g in grads]).norm()
    for k, g in zip(params, grads):
        g = g / (norm + 1e-6).clamp(min=1.0)
        m[k] = torch.lerp(m[k], g, 0.2)
        bound[k] = torch.maximum(0.9 * bound[k], g.abs() + 1e-3)  # <- infinity_norm
        lr = CFG.lr_features if k.startswith("match") else CFG.lr
        params[k] = params[k] - lr / (1 - 0.8**t) * m[k] / bound[k]  # <- infinity_norm
    losses.append(loss.item())
print(losses)
