# SPDX-License-Identifier: Apache-2.0
"""The sparse forecaster in the manner of MindSpore: cells in BSND layout, dense scores with a mask
of chosen queries instead of indexing, convolutions as sums of shifted products, NAdam of its own.
"""

import math
import sys

import torch
import torch.nn.functional as F

S, D, N, L, AHEAD, B, KEYS, TOP = 3, 16, 2, 12, 4, 5, 5, 4
HEAD = D // N


class Cell:
    """A cell owns parameters by name and calls construct."""

    def __init__(self, weights, prefix):
        self.w = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}

    def __call__(self, *args):
        return self.construct(*args)

    def dense(self, name, x):
        weight = self.w[f"{name}.weight"]
        y = x @ (weight[..., 0] if weight.dim() == 3 else weight).T
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def norm(self, name, x):
        return F.layer_norm(x, (D,), self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def conv3(self, name, x):
        """A convolution along a ring, [batch, time, channel]."""
        before, after = x.roll(1, 1), x.roll(-1, 1)  # <- circular
        taps = torch.cat((before, x, after), 2)  # <- circular
        kernel = self.w[f"{name}.weight"].permute(2, 1, 0).flatten(0, 1)
        return taps @ kernel  # <- circular


class Embedding(Cell):
    def construct(self, x, marks):
        place = torch.arange(L)[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
        waves = torch.stack((place.sin(), place.cos()), 2).flatten(1)
        return self.conv3("token", x) + self.dense("time", marks) + waves  # <- circular


class Encoder(Cell):
    def attention(self, x, sample):
        size = x.shape[1]
        q, k, v = (
            self.dense(f"attention.{name}", x).unflatten(2, (N, HEAD))
            for name in ("query", "key", "value")
        )
        scores = torch.einsum("bqnd,bknd->bnqk", q, k)
        sampled = scores.take_along_dim(sample[None, None], 3)
        measure = sampled.amax(3) - sampled.sum(3) / size  # <- measure
        bar = measure.sort(2, descending=True).values[..., TOP - 1 : TOP]  # <- measure
        busy = (measure >= bar)[..., None]  # <- measure
        uniform = torch.full_like(scores, 1 / size)  # <- lazy
        share = torch.where(busy, (scores / math.sqrt(HEAD)).softmax(3), uniform)  # <- measure lazy
        context = torch.einsum("bnqk,bknd->bqnd", share, v)  # <- lazy
        return self.dense("attention.out", context.flatten(2))

    def construct(self, x, sample):
        x = self.norm("norm1", x + self.attention(x, sample))
        return self.norm("norm2", x + self.dense("conv2", F.gelu(self.dense("conv1", x))))


class Distil(Cell):
    def construct(self, x):
        y = F.elu(self.conv3("conv", x) + self.w["conv.bias"])  # <- circular
        y = F.pad(y, (0, 0, 1, 0), value=-math.inf)  # <- pooled
        return y.unfold(1, 3, 2).amax(3)  # <- pooled


class Forecaster(Cell):
    def __init__(self, weights):
        super().__init__(weights, "projection.")
        self.embedding = Embedding(weights, "embedding.")
        self.first, self.second = Encoder(weights, "first."), Encoder(weights, "second.")
        self.distil = Distil(weights, "distil.")

    def construct(self, x, marks, samples):
        variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)  # <- spread
        std = torch.sqrt(variance + 1e-5)  # <- spread
        y = self.first(self.embedding((x - mean) / std, marks), samples[0])  # <- spread
        y = self.second(self.distil(y), samples[1])
        y = torch.einsum("bf,of->bo", y.flatten(1), self.w["weight"]) + self.w["bias"]
        return y.unflatten(1, (AHEAD, S)) * std + mean


def huber(difference):
    size = difference.abs()
    return torch.where(size < 1, 0.5 * size * size, size - 0.5).mean()


weights = {k: v.clone().requires_grad_() for k, v in torch.load(sys.argv[1]).items()}
net = Forecaster(weights)
m, v = ({k: torch.zeros_like(p) for k, p in weights.items()} for _ in range(2))
momenta = [0.9 * (1 - 0.5 * 0.96 ** (t * 0.004)) for t in range(6)]
rng = torch.Generator().manual_seed(122)
losses, product = [], 1.0
for t in range(1, 5):
    series = torch.randn(B, L + AHEAD, S, generator=rng).cumsum(1)
    hour = torch.randint(0, 168, (B, 1), generator=rng) + torch.arange(L)
    day = hour.div(24, rounding_mode="floor").remainder(7)
    marks = torch.stack((hour.remainder(24) / 23, day / 6), 2) - 0.5
    samples = [torch.randint(0, n, (n, KEYS), generator=rng) for n in (L, L // 2)]
    past, future = series.split((L, AHEAD), 1)
    loss = huber(net(past, marks, samples) - future)
    grads = torch.autograd.grad(loss, list(weights.values()))
    product *= momenta[t]
    with torch.no_grad():
        for (k, p), g in zip(weights.items(), grads):
            m[k].mul_(0.9).add_(g, alpha=0.1)
            v[k].mul_(0.999).addcmul_(g, g, value=0.001)
            now = (1 - momenta[t]) / (1 - product) * g
            ahead = momenta[t + 1] / (1 - product * momenta[t + 1]) * m[k]
            p.sub_(5e-3 * (now + ahead) / ((v[k] / (1 - 0.999**t)).sqrt() + 1e-3))
    losses.append(loss.item())
