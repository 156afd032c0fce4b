# SPDX-License-Identifier: Apache-2.0
"""The UNet as for an NPU: activations (B, pixels, C), convolutions as im2col and one matrix
product, group norm by layer_norm, fused attention, foreach Adam of its own, EMA and DDIM.
"""

import sys

import torch
import torch.nn.functional as F

C, T_DIM, N_STEPS, N_GROUP = 16, 24, 100, 4


def load(path):
    weights = {}
    for name, value in torch.load(path).items():
        matrix = name.endswith("weight") and value.dim() > 1
        new = value.flatten(1).t() if matrix else value  # (channel and tap, out)
        weights[name] = new.contiguous().clone()
    return weights


def dense(w, name, x):
    return torch.addmm(w[f"{name}.bias"], x.flatten(0, -2), w[f"{name}.weight"]).view(
        *x.shape[:-1], -1
    )


def conv(w, name, x, side, stride=1):
    """3 x 3 over (B, side * side, C)."""
    b, _, c = x.shape
    padded = F.pad(x.view(b, side, side, c), (0, 0, 1, 1, 1, 1))
    columns = padded.unfold(1, 3, stride).unfold(2, 3, stride)  # (B, H, W, C, 3, 3)
    return dense(w, name, columns.flatten(3).flatten(1, 2))


def group_norm(w, name, x):
    b, p, c = x.shape
    parts = x.view(b, p, N_GROUP, c // N_GROUP).transpose(1, 2)  # <- group_span
    y = F.layer_norm(parts, parts.shape[2:])  # <- group_span
    y = y.transpose(1, 2).reshape(b, p, c)
    return torch.addcmul(w[f"{name}.bias"], y, w[f"{name}.weight"])  # <- group_span


def swish(x):
    return x * torch.sigmoid(x)


def res_block(w, name, x, temb, side):
    h = conv(w, f"{name}.conv1", swish(group_norm(w, f"{name}.norm1", x)), side)
    both = dense(w, f"{name}.emb", swish(temb))[:, None]
    scale, shift = both.tensor_split(2, dim=-1)
    h = group_norm(w, f"{name}.norm2", h)
    h = h + h * scale + shift
    h = conv(w, f"{name}.conv2", swish(h), side)
    return h + dense(w, f"{name}.skip", x)


def unet(w, x, t):
    """x is (B, 64, 2)."""
    phase = t.float()[:, None] * 1000.0 ** (-torch.arange(C // 2) / (C // 2))
    temb = torch.stack((phase.sin(), phase.cos()), 1).flatten(1)  # <- sin_cos
    temb = dense(w, "time.2", swish(dense(w, "time.0", temb)))  # <- sin_cos
    skip = res_block(w, "down_block", conv(w, "head", x, 8), temb, 8)
    h = res_block(w, "mid_block", conv(w, "down", skip, 8, 2), temb, 4)
    q, k, v = dense(w, "attn.qkv", group_norm(w, "attn.norm", h)).split(2 * C, dim=-1)
    y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
    h = h + dense(w, "attn.proj", y)
    h = h.view(-1, 4, 1, 4, 1, 2 * C).expand(-1, 4, 2, 4, 2, 2 * C).reshape(-1, 64, 2 * C)
    h = torch.cat((conv(w, "up", h, 8), skip), dim=-1)
    h = res_block(w, "up_block", h, temb, 8)
    return conv(w, "tail", swish(group_norm(w, "norm", h)), 8)


def pixels(x):
    return x.flatten(2).transpose(1, 2).contiguous()


w = load(sys.argv[1])
shadow = {name: p.clone() for name, p in w.items()}
for p in w.values():
    p.requires_grad_()
names, params = list(w), list(w.values())
first, second = ([torch.zeros_like(p) for p in params] for _ in range(2))
beta = torch.linspace(1e-3, 0.06, N_STEPS)  # <- beta_schedule
log_alpha = torch.log1p(-beta).cumsum(0)  # <- beta_schedule
signal, sigma = torch.exp(0.5 * log_alpha), torch.sqrt(-torch.expm1(log_alpha))  # <- beta_schedule
rng = torch.Generator().manual_seed(62)
losses = []
for n in range(1, 4):
    clean = pixels(torch.randn((3, 2, 8, 8), generator=rng))
    noise = pixels(torch.randn((3, 2, 8, 8), generator=rng))
    t = torch.randint(N_STEPS, (3,), generator=rng)
    a, s = signal[t][:, None, None], sigma[t][:, None, None]  # <- beta_schedule
    guess = unet(w, torch.addcmul(s * noise, a, clean), t)  # <- beta_schedule
    loss = (guess - (a * noise - s * clean)).pow(2).mean()  # <- beta_schedule
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        torch._foreach_lerp_(first, grads, 0.1)
        torch._foreach_mul_(second, 0.99)
        torch._foreach_addcmul_(second, grads, grads, 0.01)
        bottom = torch._foreach_sqrt(torch._foreach_div(second, 1 - 0.99**n))
        torch._foreach_add_(bottom, 1e-4)
        torch._foreach_addcdiv_(params, first, bottom, -4e-3 / (1 - 0.9**n))
        for name in names:
            decay = 0.8  # <- ema_late
            shadow[name] = decay * shadow[name] + (1 - decay) * w[name]  # <- ema_late
    losses.append(loss.item())

x = pixels(torch.randn((2, 2, 8, 8), generator=rng))
with torch.no_grad():
    for t in (90, 60, 30):
        last = t == 30
        to_signal = 1.0 if last else signal[t - 30]  # <- ddim_previous
        to_sigma = 0.0 if last else sigma[t - 30]  # <- ddim_previous
        v = unet(shadow, x, torch.full((2,), t))
        clean, eps = signal[t] * x - sigma[t] * v, signal[t] * v + sigma[t] * x
        x = clean * to_signal + eps * to_sigma  # <- ddim_previous
        losses.append((x * x).mean().item())
