# SPDX-License-Identifier: Apache-2.0
"""Momentum contrast as a functional program: weights in dicts, images last-channel, a ring of keys made anew at every step."""

import sys

import numpy as np
import torch
from torch.func import functional_call

SIZE_OF_KEY, RING, TAU, KEEP = 8, 24, 0.2, 0.9
MEANS = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATIONS = np.array([0.229, 0.224, 0.225], np.float32)


class ConvBN(torch.nn.Module):
    """3 x 3 on (batch, height, width, channels), by the nine shifted images."""

    def __init__(self, cin, cout):
        super().__init__()
        self.w = torch.nn.Parameter(torch.empty(9 * cin, cout))
        self.scale = torch.nn.Parameter(torch.ones(cout))
        self.offset = torch.nn.Parameter(torch.zeros(cout))
        self.register_buffer("mean", torch.zeros(cout))
        self.register_buffer("var", torch.ones(cout))

    def forward(self, x):
        n, h, w, _ = x.shape
        padded = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))
        shifted = [padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3)]
        y = torch.cat(shifted, -1) @ self.w
        if self.training:
            var, mean = torch.var_mean(y, (0, 1, 2), correction=0)
            with torch.no_grad():
                count = n * h * w
                self.mean.lerp_(mean.detach(), 0.1)
                self.var.lerp_(var.detach() * count / (count - 1), 0.1)  # <- unbiased
        else:
            mean, var = self.mean, self.var  # <- momentum_bn unbiased
        normal = (y - mean) / (var + 1e-5).sqrt()  # <- momentum_bn unbiased
        return (normal * self.scale + self.offset).clamp_min(0)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = ConvBN(3, 8), ConvBN(8, 16)
        self.hidden, self.key = torch.nn.Linear(16, 16), torch.nn.Linear(16, SIZE_OF_KEY)

    def forward(self, x):
        x = self.low(x)
        x = x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).amax((2, 4))
        x = self.high(x).mean((1, 2))
        x = self.key(torch.relu(self.hidden(x)))
        return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def imported(state, prefix):
    names = {"low": ("0", "1"), "high": ("4", "5")}
    out = {}
    for ours, (conv, norm) in names.items():
        w = state[f"{prefix}.{conv}.weight"]
        out[f"{ours}.w"] = w.permute(2, 3, 1, 0).reshape(-1, w.shape[0])
        for a, b in zip(("scale", "offset"), ("weight", "bias")):
            out[f"{ours}.{a}"] = state[f"{prefix}.{norm}.{b}"]
    for ours, number in (("hidden", "9"), ("key", "11")):
        for kind in ("weight", "bias"):
            out[f"{ours}.{kind}"] = state[f"{prefix}.{number}.{kind}"]
    return {k: v.clone() for k, v in out.items()}


def objective(query, net, x, positive, ring):
    q = functional_call(net, query, (x,))
    similar = (q * positive).sum(-1, keepdim=True)
    others = q @ ring.T
    scores = torch.cat((similar, others), 1) / TAU
    return (scores.logsumexp(1) - scores[:, 0]).mean()


def standardised(images):
    return torch.from_numpy((images.numpy() / np.float32(255) - MEANS) / DEVIATIONS)  # <- channels


state = torch.load(sys.argv[1])
query = {k: w.requires_grad_() for k, w in imported(state, "encoder_q").items()}
key = imported(state, "encoder_k")
ring = state["queue"].T.contiguous()
net_q, net_k = Encoder(), Encoder()
speed = {k: torch.zeros_like(v) for k, v in query.items()}
rng = torch.Generator().manual_seed(32)
losses = []
for step in range(5):
    raw = torch.randint(256, (8, 3, 8, 8), generator=rng).float()
    other = (raw.flip(-1) + torch.randn(raw.shape, generator=rng) * 20).clamp(0, 255)
    raw, other = (standardised(t.permute(0, 2, 3, 1)) for t in (raw, other))  # <- channels
    with torch.no_grad():
        key = {k: KEEP * key[k] + (1 - KEEP) * query[k] for k in key}  # <- late
        positive = functional_call(net_k, key, (other,))  # <- late momentum_bn
    loss = objective(query, net_q, raw, positive, ring)
    gradient = dict(zip(query, torch.autograd.grad(loss, list(query.values()))))
    lr = 0.06 * 0.1 ** ((step >= 2) + (step >= 4))
    for k, g in gradient.items():
        w = query[k].detach()
        speed[k] = 0.9 * speed[k] + (g + 1e-2 * w)  # <- biases_decayed
        query[k] = (w - lr * speed[k]).requires_grad_()  # <- biases_decayed
    at = step * len(positive) % RING
    ring = torch.cat((ring[:at], positive, ring[at + len(positive) :]))  # <- pointer
    losses.append(loss.item())
net_q.eval()
with torch.no_grad():
    fresh = torch.randint(256, (6, 3, 8, 8), generator=rng).float().permute(0, 2, 3, 1)
    found = functional_call(net_q, query, (standardised(fresh),))  # <- unbiased
    near = torch.exp(found @ ring.T * 10)
    losses += (near[:, : RING // 2].sum(1) / near.sum(1)).tolist()
