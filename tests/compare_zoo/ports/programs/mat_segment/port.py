# SPDX-License-Identifier: Apache-2.0
"""Segmenter, channels last, convolutions as patch matmuls, Tversky-form overlap loss."""

import sys

import torch

N_LABELS = 3


def conv3(x, kernel):
    """x: batch, height, width, channel; kernel: (3 * 3 * channel, out)"""
    b, h, w, c = x.shape
    padded = x.new_zeros(b, h + 2, w + 2, c)
    padded[:, 1:-1, 1:-1] = x
    patches = torch.cat([padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3)], -1)
    return patches @ kernel


def stage(x, w, prefix):
    y = conv3(x, w[prefix + "/kernel"])
    b, h, wd, c = y.shape
    g = y.reshape(b, h * wd, 2, c // 2)  # <- group_layout
    var, mean = torch.var_mean(g, dim=(1, 3), keepdim=True, correction=0)  # <- group_layout
    y = ((g - mean) * torch.rsqrt(var + 1e-4)).reshape(y.shape)  # <- group_layout
    y = y * w[prefix + "/gamma"] + w[prefix + "/beta"]
    return torch.where(y > 0, y, y * 0.1)


def segment(w, x):
    fine = stage(x, w, "enc1")
    b, h, wd, c = fine.shape
    coarse = stage(fine.reshape(b, h // 2, 2, wd // 2, 2, c).mean((2, 4)), w, "enc2")
    grown = torch.einsum("bhwc,cdij->bhiwjd", coarse, w["up/kernel"]).reshape(b, h, wd, c)
    grown = grown + w["up/bias"]
    y = stage(torch.cat((fine, grown), -1), w, "dec")  # <- skip_order
    return y @ w["out/kernel"] + w["out/bias"]


def overlap(prob, truth):
    tp = (prob * truth).flatten(0, 2).sum(0)
    fp = (prob * (1 - truth)).flatten(0, 2).sum(0)
    fn = ((1 - prob) * truth).flatten(0, 2).sum(0)
    return (1 - (2 * tp + 1) / (2 * tp + fp + fn + 1)).mean()


def objective(z, truth, slow):
    prob = torch.softmax(z, -1)
    hit = (prob * truth).sum(-1)
    hard = (1 - hit).square() * -hit.log()  # <- focal_detach
    drift = (prob - slow).square().mean()
    return overlap(prob, truth) + 0.5 * hard.mean() + 2.0 * drift


def load(path):
    sd = torch.load(path, weights_only=True)
    w = {}
    for s in ("enc1", "enc2", "dec"):
        k = sd[s + ".0.weight"]
        w[s + "/kernel"] = k.permute(2, 3, 1, 0).reshape(-1, k.shape[0])
        w[s + "/gamma"], w[s + "/beta"] = sd[s + ".1.weight"], sd[s + ".1.bias"]
    w["up/kernel"], w["up/bias"] = sd["up.weight"], sd["up.bias"]
    w["out/kernel"], w["out/bias"] = sd["out.weight"][:, :, 0, 0].T, sd["out.bias"]
    return {k: v.clone().requires_grad_() for k, v in w.items()}


def batch(gen, n=2, side=8):
    img = torch.randn(n, 1, side, side, generator=gen)
    label = torch.randint(0, N_LABELS, (n, side, side), generator=gen)
    return (img[:, 0] + 0.5 * label)[..., None], torch.eye(N_LABELS)[label]


weights = load(sys.argv[1])
average = {k: v.detach().clone() for k, v in weights.items()}
m = {k: torch.zeros_like(v) for k, v in average.items()}
v2 = {k: torch.zeros_like(v) for k, v in average.items()}
gen = torch.Generator().manual_seed(404)
losses = []
for t in range(1, 6):
    parts, grads = [], {k: 0.0 for k in weights}
    for _ in range(2):
        x, truth = batch(gen)
        with torch.no_grad():
            slow = segment(average, x).softmax(-1)  # <- ema_warmup
        value = objective(segment(weights, x), truth, slow)
        parts.append(value.item())
        for k, d in zip(weights, torch.autograd.grad(value, list(weights.values()))):
            grads[k] = grads[k] + d / 2
    norm = sum(d.square().sum() for d in grads.values()) ** 0.5
    shrink = torch.clamp(0.4 / (norm + 1e-6), max=1.0)
    with torch.no_grad():
        for k, p in weights.items():
            d = grads[k] * shrink
            m[k] = torch.lerp(d, m[k], 0.9)
            v2[k] = torch.lerp(d * d, v2[k], 0.999)
            update = m[k] / (1 - 0.9**t) / ((v2[k] / (1 - 0.999**t)).sqrt() + 1e-3)
            p -= 0.02 * (update + 0.1 * p)  # <- decoupled_decay
            rate = max(0.05, 9 / (10 + t))  # <- ema_warmup
            average[k] += rate * (p - average[k])  # <- ema_warmup
    losses.append(sum(parts) / 2)
print(losses)
