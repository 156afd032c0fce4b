# SPDX-License-Identifier: Apache-2.0
"""Channels-last functional rewrite of the speckle classifier with a hand-made loop."""
import math
import sys

import torch

torch.set_num_threads(1)

STEPS, BATCH, K, C, S = 5, 4, 6, 8, 6
BN_MOMENTUM, BN_EPS = 0.5, 1e-5


def load(path):
    """Kernels become (9*cin, cout) matrices, the head follows the (h, w, c) flattening order."""
    raw = torch.load(path)
    params, stats = {}, {}
    for name in ("stem", "left", "right"):
        w = raw[f"{name}.conv.weight"]
        params[f"{name}/kernel"] = w.permute(2, 3, 1, 0).reshape(-1, w.shape[0]).clone()
        params[f"{name}/gamma"] = raw[f"{name}.norm.weight"].clone()
        params[f"{name}/beta"] = raw[f"{name}.norm.bias"].clone()
        stats[name] = [raw[f"{name}.norm.running_mean"].clone(), raw[f"{name}.norm.running_var"].clone()]
    head = raw["head.weight"].reshape(K, C, S // 2, S // 2).permute(2, 3, 1, 0)
    params["head/kernel"] = head.reshape(-1, K).clone()
    params["head/bias"] = raw["head.bias"].clone()
    return {k: v.requires_grad_() for k, v in params.items()}, stats


def conv3x3(x, kernel):
    b, h, w, _ = x.shape
    wide = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))
    taps = [wide[:, i:i + h, j:j + w] for i in range(3) for j in range(3)]
    return torch.cat(taps, dim=-1) @ kernel


def batch_norm(x, gamma, beta, stat, frozen):
    if frozen:
        mean, var = stat
    else:
        flat = x.reshape(-1, x.shape[-1])
        mean = flat.mean(0)
        var = (flat - mean).pow(2).mean(0)
        n = flat.shape[0]
        with torch.no_grad():
            stat[0] += BN_MOMENTUM * (mean - stat[0])
            stat[1] += BN_MOMENTUM * (var * n / (n - 1) - stat[1])  # <- running_var_biased
    return (x - mean) * torch.rsqrt(var + BN_EPS) * gamma + beta


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))  # <- gelu_tanh


def network(p, stats, x, frozen):
    def unit(name, z):
        z = conv3x3(z, p[name + "/kernel"])
        return batch_norm(z, p[name + "/gamma"], p[name + "/beta"], stats[name], frozen)

    x = gelu(unit("stem", x))
    x = gelu(x + unit("right", gelu(unit("left", x))))
    pooled = x.reshape(len(x), S // 2, 2, S // 2, 2, C).mean(dim=(2, 4))
    return pooled.reshape(len(x), -1) @ p["head/kernel"] + p["head/bias"]


def smoothed_nll(logits, y, eps=0.1):
    logp = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    target = torch.full_like(logp, eps / K)  # <- smoothing_others
    target.scatter_(1, y[:, None], 1 - eps + eps / K)  # <- smoothing_others
    return -(target * logp).sum(-1).mean()


def rate(step):
    ramp = (step + 1) / 3
    wave = 0.5 * (1 + math.cos(math.pi * (step - 2) / (STEPS - 2)))
    return 0.08 * (ramp if step < 2 else wave)


def clip(grads, limit):
    norm = torch.sqrt(sum(g.pow(2).sum() for g in grads.values()))  # <- clip_each
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    return {k: g * scale for k, g in grads.items()}  # <- clip_each


def batches():
    gen = torch.Generator().manual_seed(31)
    y = torch.randint(0, K, (STEPS * BATCH,), generator=gen)
    x = torch.randn(STEPS * BATCH, 3, S, S, generator=gen) + 0.4 * y[:, None, None, None] / K
    return zip(x.permute(0, 2, 3, 1).split(BATCH), y.split(BATCH))


params, stats = load(sys.argv[1])
velocity = {k: torch.zeros_like(v) for k, v in params.items()}
losses = []
for step, (x, y) in enumerate(batches()):
    loss = smoothed_nll(network(params, stats, x, frozen=step >= 2), y)
    losses.append(loss.item())
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    grads = clip(grads, 0.5)
    lr = rate(step)  # <- schedule_ahead
    with torch.no_grad():
        for k, w in params.items():
            g = grads[k] + (5e-3 * w if w.ndim > 1 else 0)
            velocity[k].mul_(0.9).add_(g)
            w.sub_(lr * (g + 0.9 * velocity[k]))  # <- schedule_ahead
print(losses)
