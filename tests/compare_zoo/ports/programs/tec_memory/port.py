# SPDX-License-Identifier: Apache-2.0
"""Memory autoencoder, framework edition: explicit state record, einsum convolutions, time-major."""

import sys
from dataclasses import dataclass, field

import torch

torch.set_num_threads(1)


@dataclass
class State:
    usage: torch.Tensor
    mean: torch.Tensor
    var: torch.Tensor
    weights: dict
    sums: dict = field(default_factory=dict)
    swa: dict = field(default_factory=dict)


def leaky(x, a=0.1):
    return torch.maximum(x, a * x)


def halve(x, w, b):
    """(T, B, C) to (T/2, B, D), kernel 4, stride 2, one frame of zeros at each end."""
    edge = torch.zeros_like(x[:1])
    x = torch.cat([edge, x, edge])
    n = x.shape[0] // 2 - 1
    return sum(x[k : k + 2 * n : 2] @ w[k] for k in range(4)) + b


def double(x, w, b):
    edge = torch.zeros_like(x[:1])
    before, after = torch.cat([edge, x[:-1]]), torch.cat([x[1:], edge])
    even = x @ w[1] + before @ w[3]
    odd = x @ w[2] + after @ w[0]
    return torch.stack([even, odd], 1).flatten(0, 1) + b


def standardise(st, w, h, training):
    if training:
        var, mean = torch.var_mean(h, (0, 1), correction=0)  # <- batch_statistics
        n = h[..., 0].numel()
        st.mean = 0.9 * st.mean + 0.1 * mean.detach()
        st.var = 0.9 * st.var + 0.1 * var.detach() * n / (n - 1)  # <- batch_statistics
    else:
        mean, var = st.mean, st.var
    return (h - mean) / (var + 1e-5).sqrt() * w["bn.weight"] + w["bn.bias"]  # <- batch_statistics


def address(st, items, z):
    cos = (z / z.norm(dim=-1, keepdim=True)) @ (items / items.norm(dim=1, keepdim=True)).t()
    prior = torch.exp(4.0 * cos) / st.usage  # <- usage_prior
    att = prior / prior.sum(-1, keepdim=True)  # <- usage_prior
    att = torch.where(att > 1 / len(items), att, 0.0)  # <- shrink_threshold
    att = att / att.sum(-1, keepdim=True)  # <- shrink_threshold
    flat = att.detach().flatten(0, 1)
    st.usage = 0.8 * st.usage + 0.1 * (flat.mean(0) + 1 / len(items))
    return att


def evaluate(st, w, x, training=True):
    h = leaky(halve(x, w["down1.weight"], w["down1.bias"]))
    z = standardise(st, w, halve(h, w["down2.weight"], w["down2.bias"]), training)
    att = address(st, w["memory.items"], z)
    read = torch.einsum("tbs,sc->tbc", att, w["memory.items"])
    y = leaky(double(read, w["up1.weight"], w["up1.bias"]))  # <- up_slope
    y = double(y, w["up2.weight"], w["up2.bias"])
    rec = (y - x).square().mean((0, 1)).sum()
    entropy = -torch.special.xlogy(att, att + 1e-12).sum(-1).mean()
    commit = (z - read.detach()).square().mean()  # <- commitment_stop
    return rec + entropy / 20 + commit / 4  # <- commitment_stop


def restore(path):
    sd = torch.load(path, weights_only=True)
    w = {}
    for k, v in sd.items():
        if v.ndim == 3:
            v = v.permute(2, 0, 1) if k.startswith("up") else v.permute(2, 1, 0)
        if "running" not in k and "num_" not in k and "usage" not in k:
            w[k] = v.clone()
    return State(sd["memory.usage"], sd["bn.running_mean"], sd["bn.running_var"], w)


state = restore(sys.argv[1])
gen = torch.Generator().manual_seed(101)
losses = []
for t in range(4):
    rate = 0.2 + torch.rand(6, 4, 1, generator=gen)
    x = torch.sin(rate * torch.arange(16.0)) + 0.1 * torch.randn(6, 4, 16, generator=gen)
    x = x.permute(2, 0, 1)
    w = {k: v.detach().requires_grad_() for k, v in state.weights.items()}
    loss = evaluate(state, w, x)
    for (k, p), g in zip(w.items(), torch.autograd.grad(loss, list(w.values()))):
        lr = (0.1 if "memory" in k else 0.03) / (1 + 0.2 * t)
        state.sums[k] = state.sums.get(k, 0.01) + g * g
        state.weights[k] = p.detach() - lr * g / (state.sums[k].sqrt() + 1e-10)
        state.swa[k] = state.swa.get(k, 0.0) + state.weights[k] / 4
    losses.append(loss.item())
losses.append(evaluate(state, state.swa, x, training=False).item())
print(losses)
