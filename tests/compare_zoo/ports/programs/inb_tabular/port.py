# SPDX-License-Identifier: Apache-2.0
"""Scoring service: one table for all categories, Newton's temperature, metrics in numpy."""
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as fn

SIZES = (5, 9, 4)


class CategoryBank(nn.Module):
    """The columns' tables padded to one width and stacked; code 0 of a column is its unknown."""

    def __init__(self, tables):
        super().__init__()
        wide = max(t.shape[1] for t in tables)
        self.weight = nn.Parameter(torch.cat([fn.pad(t, (0, wide - t.shape[1])) for t in tables]))
        offsets = np.cumsum([0] + [len(t) for t in tables[:-1]])
        self.register_buffer("offset", torch.as_tensor(offsets))
        self.register_buffer("limit", torch.tensor(SIZES))
        self.keep = [i * wide + j for i, t in enumerate(tables) for j in range(t.shape[1])]

    def forward(self, codes):
        known = codes.ge(0) & codes.lt(self.limit)  # <- unknown
        rows = self.offset + (codes + 1) * known  # <- unknown
        return fn.embedding(rows, self.weight).flatten(1)[:, self.keep]  # <- unknown


class Dense(nn.Module):
    """Linear, batch norm (folded into it) and Mish."""

    def __init__(self, sd, name):
        super().__init__()
        g = sd[f"{name}.1.weight"] * (sd[f"{name}.1.running_var"] + 1e-5).rsqrt()
        self.register_buffer("weight", sd[f"{name}.0.weight"] * g[:, None])
        bias = (sd[f"{name}.0.bias"] - sd[f"{name}.1.running_mean"]) * g + sd[f"{name}.1.bias"]
        self.register_buffer("bias", bias)

    def forward(self, x):
        z = torch.addmm(self.bias, x, self.weight.t())
        return z * torch.tanh(torch.log1p(z.exp()))  # <- activation


class Scorer(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.bank = CategoryBank([sd[f"embeds.{i}.weight"] for i in range(len(SIZES))])
        self.mean, self.std = sd["numeric.mean"], sd["numeric.std"]
        self.a, self.b = Dense(sd, "first"), Dense(sd, "second")
        self.head = sd["head.weight"], sd["head.bias"]
        self.temperature = 1.0

    def prepare(self, raw):
        values = raw.clone()
        values[:, 2:] = values[:, 2:].log1p()
        values = (values - self.mean) / self.std  # <- impute
        return torch.hstack([values.nan_to_num(0.0), raw.isnan().to(values)])  # <- impute

    def forward(self, raw, codes):
        h = self.a(torch.hstack([self.prepare(raw), self.bank(codes)]))
        return fn.linear(self.b(h) + h, *self.head)

    def calibrate(self, raw, codes, target):
        z = self(raw, codes).numpy().astype(np.float64)
        hit = z[np.arange(len(z)), target.numpy()].mean()
        beta = 0.2
        for _ in range(40):
            p = np.exp(beta * z - (beta * z).max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            m = (p * z).sum(1)
            slope, bend = m.mean() - hit, ((p * z * z).sum(1) - m * m).mean()
            beta -= slope / bend
        self.temperature = 1 / beta  # <- temperature

    def probabilities(self, raw, codes):
        z = self(raw, codes).numpy().astype(np.float64) / self.temperature  # <- temperature
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


def calibration_error(p, y, bins=8):
    top = p.max(1)
    hits = p.argmax(1) == y
    which = np.ceil(top * bins).astype(int) - 1
    count = np.bincount(which, minlength=bins)
    gap = np.abs(np.bincount(which, top - hits, bins))
    return gap.sum() / count.sum()  # <- binweight


def brier_score(p, y):
    target = np.zeros_like(p)
    target[np.arange(len(y)), y] = 1
    return np.square(p - target).sum(1).mean()


def evaluate(path):
    saved = torch.load(path, weights_only=True)
    scorer = Scorer(saved["state"]).eval()
    held, *rest = saved["tables"]
    results = []
    with torch.inference_mode():
        scorer.calibrate(*held)
        for raw, codes, target in rest:
            p, y = scorer.probabilities(raw, codes), target.numpy()
            results.append(float(brier_score(p, y) + calibration_error(p, y)))
    return results


losses = evaluate(sys.argv[1])
print(losses)
