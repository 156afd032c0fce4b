# SPDX-License-Identifier: Apache-2.0
"""Noise predictor in channels-last layout: convolutions are patch gathers and matrix products."""
import sys

import torch

CKPT = torch.load(sys.argv[1], weights_only=True)


def to_hwio(name, w):
    return w.permute(2, 3, 1, 0).contiguous() if w.ndim == 4 else w.t().contiguous()


params = {}
for name, w in CKPT.items():
    w = to_hwio(name, w) if w.ndim in (2, 4) else w.clone()
    params[name] = w.detach().requires_grad_(True)


def conv(x, name, stride=1):
    """x: [B, H, W, C]; 'same' padding for odd kernels."""
    w, b = params[name + ".weight"], params[name + ".bias"]
    k = w.shape[0]
    B, H, W, C = x.shape
    r = k // 2
    canvas = x.new_zeros(B, H + 2 * r, W + 2 * r, C)
    canvas[:, r:r + H, r:r + W] = x
    patches = canvas.unfold(1, k, stride).unfold(2, k, stride)
    return torch.einsum("bhwcij,ijco->bhwo", patches, w) + b


def dense(x, name):
    return x @ params[name + ".weight"] + params[name + ".bias"]


def group_norm(x, name, groups=4):
    B, H, W, C = x.shape
    g = x.reshape(B, H * W, groups, C // groups)  # <- group_axis
    mu = g.mean((1, 3), keepdim=True)  # <- group_axis
    var = (g - mu).pow(2).mean((1, 3), keepdim=True)  # <- group_axis
    g = (g - mu) / torch.sqrt(var + 1e-5)  # <- group_axis
    return g.reshape(B, H, W, C) * params[name + ".weight"] + params[name + ".bias"]


def silu(x):
    return x / (1 + torch.exp(-x))


def res_block(x, emb, name):
    h = conv(silu(group_norm(x, name + ".in_norm")), name + ".in_conv")
    film = dense(silu(emb), name + ".emb_proj")[:, None, None]
    n = film.shape[-1] // 2
    h = group_norm(h, name + ".out_norm")
    h = torch.addcmul(h + film[..., n:], h, film[..., :n])  # <- film_one
    if name + ".skip.weight" in params:
        x = conv(x, name + ".skip")
    return x + conv(silu(h), name + ".out_conv")


def time_code(t, width):
    w = 10000.0 ** (-torch.arange(width // 2) / (width // 2))
    phase = torch.outer(t.to(torch.float32), w)
    return torch.cat((phase.cos(), phase.sin()), 1)  # <- time_order


def predict(x, t):
    e = dense(silu(dense(time_code(t, 8), "time_mlp.0")), "time_mlp.2")
    top = res_block(conv(x, "stem"), e, "enc")
    low = res_block(conv(top, "down", stride=2), e, "mid")
    low = low.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
    y = res_block(torch.cat((conv(low, "up"), top), -1), e, "dec")
    return conv(silu(group_norm(y, "head_norm")), "head")


T = 50
root = torch.linspace(1e-3 ** 0.5, 0.08 ** 0.5, T)  # <- beta_table
log_keep = torch.log1p(-root * root).cumsum(0)  # <- beta_table
signal, sigma = torch.exp(0.5 * log_keep), torch.sqrt(-torch.expm1(log_keep))  # <- beta_table

m1 = {k: torch.zeros_like(p) for k, p in params.items()}
m2 = {k: torch.zeros_like(p) for k, p in params.items()}
rng = torch.Generator().manual_seed(77)
losses = []
for it in range(1, 5):
    clean = torch.randn(5, 2, 8, 8, generator=rng).permute(0, 2, 3, 1)
    t = torch.randint(0, T, (5,), generator=rng)
    eps = torch.randn(5, 2, 8, 8, generator=rng).permute(0, 2, 3, 1)
    pick = lambda table: table.index_select(0, t).reshape(-1, 1, 1, 1)
    noisy = pick(signal) * clean + pick(sigma) * eps  # <- beta_table
    err = predict(noisy, t) - eps
    loss = (err * err).sum() / err.numel()
    grads = torch.autograd.grad(loss, list(params.values()))
    total = torch.sqrt(sum(g.square().sum() for g in grads))  # <- clip_norm
    shrink = min(1.0, 0.5 / (float(total) + 1e-6))  # <- clip_norm
    with torch.no_grad():
        for (k, p), g in zip(params.items(), grads):
            g = g * shrink  # <- clip_norm
            m1[k] = 0.9 * m1[k] + 0.1 * g
            m2[k] = 0.999 * m2[k] + 0.001 * g * g
            p *= 1 - 2e-3 * 0.01
            hat = (m2[k] / (1 - 0.999 ** it)).sqrt() + 1e-4
            p -= 2e-3 / (1 - 0.9 ** it) * m1[k] / hat  # <- clip_norm
    losses.append(loss.item())
print(losses)
