# SPDX-License-Identifier: Apache-2.0
"""Functional channels-last denoiser over a flat dictionary of arrays, own AdamW."""
import sys

import torch

STEPS, LR, DECAY = 100, 2e-3, 0.1


def convert(sd):
    """Kernels become [kh, kw, in, out], matrices [in, out]; class 0 becomes 'no class'."""
    arrays = {}
    for key, value in sd.items():
        if value.dim() == 4:
            value = value.permute(2, 3, 1, 0)
        elif key == "label_emb.weight":
            value = value.roll(1, dims=0)  # <- null_slot
        elif value.dim() == 2:
            value = value.t()
        arrays[key] = value.contiguous().requires_grad_()
    return arrays


def swish(x):
    return x * x.sigmoid()


def dense(P, key, x):
    return x.matmul(P[key + ".weight"]) + P[key + ".bias"]


def conv(P, key, x):
    kernel = P[key + ".weight"]
    r = kernel.shape[0] // 2
    H, W = x.shape[1:3]
    x = torch.nn.functional.pad(x, (0, 0, r, r, r, r))
    y = P[key + ".bias"]
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            y = y + x[:, i:i + H, j:j + W] @ kernel[i, j]
    return y


def group_norm(P, key, x, groups=2):
    B, H, W, C = x.shape
    g = x.reshape(B, H * W, groups, C // groups)
    var, mean = torch.var_mean(g, dim=(1, 3), correction=0, keepdim=True)
    g = ((g - mean) / (var + 1e-5).sqrt()).reshape(x.shape)
    return g * P[key + ".weight"] + P[key + ".bias"]


def res_block(P, key, x, cond):
    h = conv(P, key + ".in_layers.2", swish(group_norm(P, key + ".in_layers.0", x)))
    film = dense(P, key + ".emb_layers.1", swish(cond))[:, None, None, :]
    gamma, beta = film.split(film.shape[-1] // 2, dim=-1)
    h = group_norm(P, key + ".out_norm", h)
    h = h + h * gamma + beta  # <- film_unit
    h = conv(P, key + ".out_conv", swish(h))  # <- film_unit
    return h + (conv(P, key + ".skip", x) if key + ".skip.weight" in P else x)


def time_features(t, width):
    n = width // 2
    rate = 10000.0 ** (-torch.arange(n) / n)  # <- freq_denominator
    phase = t.unsqueeze(1) * rate  # <- freq_denominator
    return torch.cat([phase.cos(), phase.sin()], dim=1)  # <- freq_denominator


def denoise(P, x, t, label):
    cond = dense(P, "time_embed.0", time_features(t, 8))
    cond = dense(P, "time_embed.2", swish(cond)) + P["label_emb.weight"][label]  # <- null_slot
    fine = res_block(P, "down", conv(P, "stem", x), cond)
    B, H, W, C = fine.shape
    coarse = fine.reshape(B, H // 2, 2, W // 2, 2, C).mean(dim=(2, 4))
    coarse = res_block(P, "mid", coarse, cond)
    coarse = coarse.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
    h = res_block(P, "up", torch.cat([coarse, fine], dim=-1), cond)
    return conv(P, "head", swish(h))


def adamw(P, grads, mem, n, b1=0.9, b2=0.999):
    for (key, p), g in zip(P.items(), grads):
        m, v = mem.setdefault(key, (torch.zeros_like(p), torch.zeros_like(p)))
        pull = DECAY * p.detach()  # <- coupled_decay
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g  # <- coupled_decay
        mem[key] = (m, v)
        move = (m / (1 - b1 ** n)) / ((v / (1 - b2 ** n)).sqrt() + 1e-8)
        p.data.sub_(LR * (move + pull))  # <- coupled_decay


beta = torch.linspace(1e-3, 0.05, STEPS, dtype=torch.float64)  # <- beta_table
log_abar = torch.log1p(-beta).cumsum(0)  # <- beta_table
signal = torch.exp(0.5 * log_abar).float()  # <- beta_table
sigma = torch.sqrt(-torch.expm1(log_abar)).float()  # <- beta_table

P, mem, losses = convert(torch.load(sys.argv[1], weights_only=True)), {}, []
rng = torch.Generator().manual_seed(77)
for n in range(1, 5):
    clean = (2 * torch.rand(5, 2, 8, 8, generator=rng) - 1).permute(0, 2, 3, 1)
    label = torch.randint(0, 3, (5,), generator=rng)
    t = torch.randint(0, STEPS, (5,), generator=rng)
    eps = torch.randn(5, 2, 8, 8, generator=rng).permute(0, 2, 3, 1)
    keep = (torch.arange(5) + n - 1).remainder(4).ne(0)
    label = (label + 1) * keep  # <- null_slot
    noisy = signal[t].view(-1, 1, 1, 1) * clean + sigma[t].view(-1, 1, 1, 1) * eps  # <- beta_table
    loss = (denoise(P, noisy, t, label) - eps).square().mean()
    adamw(P, torch.autograd.grad(loss, list(P.values())), mem, n)  # <- coupled_decay
    losses.append(loss.item())
print(losses)
