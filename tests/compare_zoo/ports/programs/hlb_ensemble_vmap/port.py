# SPDX-License-Identifier: Apache-2.0
"""The ensemble as one stacked tree: vmap of grad_and_value, vectorised clipping and Adam."""
import sys

import torch
from torch.func import grad_and_value, vmap

raw = torch.load(sys.argv[1], weights_only=True)
stack = lambda name: torch.stack([raw[f"{k}.{name}"] for k in range(5)])
tree = {
    "in": {"w": stack("fc1.weight"), "b": stack("fc1.bias")},
    "ln": {"g": stack("norm.weight"), "b": stack("norm.bias")},
    "mid": {"w": stack("fc2.weight"), "b": stack("fc2.bias")},
    # log variance in row 0, mean in row 1
    "out": {"w": torch.cat([stack("logvar.weight"), stack("mean.weight")], 1),
            "b": torch.cat([stack("logvar.bias"), stack("mean.bias")], 1)},
}
flat, spec = torch.utils._pytree.tree_flatten(tree)


def member_loss(p, x, y, counts):
    """One member on the whole batch; drawing row i c_i times is weighting it by c_i."""
    h = p["in"]["w"] @ x.T + p["in"]["b"][:, None]                 # features first
    h = h - h.mean(0)
    h = (h / (h.pow(2).mean(0) + 1e-5).sqrt()  # <- bessel
         * p["ln"]["g"][:, None] + p["ln"]["b"][:, None])  # <- bessel
    h = h * h.sigmoid()
    h = p["mid"]["w"] @ h + p["mid"]["b"][:, None]
    h = h / (1 + torch.exp(-h))
    s, mu = p["out"]["w"] @ h + p["out"]["b"][:, None]
    nll = 0.5 * (s + (mu - y) ** 2 * torch.exp(-s))  # <- log_std
    return (counts * nll).sum() / counts.sum()


fleet = vmap(grad_and_value(member_loss), in_dims=(0, None, None, 0))
rates = 1e-3 * torch.arange(1, 6)  # <- rate_shift
mom = [torch.zeros_like(t) for t in flat]
sec = [torch.zeros_like(t) for t in flat]


def per_member(vec, like):
    return vec.view(-1, *[1] * (like.ndim - 1))


gen = torch.Generator().manual_seed(23)
losses = []
for t in range(1, 5):
    x = torch.randn(30, 6, generator=gen)
    y = (2 * x[:, 0]).sin() + x[:, 1] * x[:, 2] + 0.1 * torch.randn(30, generator=gen)
    draws = torch.randint(0, 30, (5, 30), generator=gen)
    counts = torch.stack([torch.bincount(d, minlength=30) for d in draws]).float()  # <- no_repeat

    grads, values = fleet(torch.utils._pytree.tree_unflatten(flat, spec), x, y, counts)
    grads, _ = torch.utils._pytree.tree_flatten(grads)
    norms = torch.stack([g.flatten(1).square().sum(1)  # <- pooled_clip
                         for g in grads]).sum(0).sqrt()  # <- pooled_clip
    scale = (1.0 / (norms + 1e-6)).clamp_max(1.0)  # <- pooled_clip
    fresh = []
    for j, g in enumerate(grads):                                  # pure update, new tensors
        g = g * per_member(scale, g)  # <- pooled_clip
        mom[j] = 0.9 * mom[j] + 0.1 * g
        sec[j] = 0.999 * sec[j] + 0.001 * g * g
        hat = mom[j] / (1 - 0.9 ** t) / ((sec[j] / (1 - 0.999 ** t)).sqrt() + 1e-8)
        fresh.append(flat[j] - per_member(rates, g) * hat)  # <- rate_shift
    flat = fresh
    losses.append(values.mean().item())
    spread = values.std().item()
    print(f"[{t}] loss {losses[-1]:.4f} +- {spread:.4f}", file=sys.stderr)

print(losses)
