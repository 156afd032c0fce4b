# SPDX-License-Identifier: Apache-2.0
"""Voice matching library: numpy filter bank, layers on spliced frames as plain functions."""
import sys

import numpy as np
import torch

RATE, FFT, FRAME, SHIFT, BANDS = 4000, 128, 100, 40, 16


def triangular_bank():
    hz = lambda m: 700.0 * (10.0 ** (m / 2595.0) - 1.0)  # noqa: E731
    corner = hz(np.linspace(0, 2595.0 * np.log10(1 + RATE / 1400.0), BANDS + 2))
    grid = np.arange(FFT // 2 + 1) * RATE / FFT
    bank = np.empty((len(grid), BANDS))
    for b in range(BANDS):
        lo, mid, hi = corner[b : b + 3]
        bank[:, b] = np.interp(grid, [lo, mid, hi], [0, 1, 0], left=0, right=0)
    return bank


def filterbank(signal, bank=triangular_bank()):
    x = np.asarray(signal, dtype=np.float64)
    previous = np.concatenate([x[:, 1:2], x[:, :-1]], axis=1)
    x = x - 0.97 * previous
    x = np.pad(x, ((0, 0), (FFT // 2, FFT // 2)), mode="reflect")
    taper = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)  # <- window
    side = (FFT - FRAME) // 2
    frames = np.lib.stride_tricks.sliding_window_view(x, FFT, axis=1)[:, ::SHIFT]
    frames = frames * np.pad(taper, (side, side))  # <- window
    spectrum = np.fft.rfft(frames, axis=2)
    energy = spectrum.real**2 + spectrum.imag**2
    logs = np.log(energy @ bank + 1e-3)
    logs = logs - logs.mean(axis=1, keepdims=True)  # <- cmn
    return torch.from_numpy(logs.astype(np.float32))  # n, frames, bands


def splice(x, width, gap):
    n = x.shape[1] - (width - 1) * gap
    return torch.cat([x[:, i * gap : i * gap + n] for i in range(width)], dim=2)


def tdnn(p, i, x, gap):
    kernel = p[f"blocks.{i}.conv.weight"]
    flat = kernel.permute(0, 2, 1).reshape(kernel.shape[0], -1)
    y = splice(x, kernel.shape[2], gap) @ flat.t() + p[f"blocks.{i}.conv.bias"]
    gain = p[f"blocks.{i}.norm.weight"] / torch.sqrt(p[f"blocks.{i}.norm.running_var"] + 1e-5)
    shift = p[f"blocks.{i}.norm.bias"] - p[f"blocks.{i}.norm.running_mean"] * gain
    return torch.relu(y) * gain + shift  # <- swapped


def pooled(p, x):
    h = torch.tanh(x @ p["pool.tdnn.weight"][..., 0].t() + p["pool.tdnn.bias"])
    attention = (h @ p["pool.conv.weight"][..., 0].t() + p["pool.conv.bias"]).softmax(1)
    first = torch.einsum("ntc,ntc->nc", attention, x)
    second = (attention * (x - first[:, None]).square()).sum(1)  # <- spread
    return torch.hstack((first, second.clamp_min(1e-8).sqrt()))  # <- spread


def voiceprint(p, signal):
    x = filterbank(signal)
    for i, gap in enumerate((1, 2, 1)):
        x = tdnn(p, i, x, gap)
    return pooled(p, x) @ p["fc.weight"].t() + p["fc.bias"]


class Matcher:
    def __init__(self, params, impostors, keep=12):
        self.p, self.keep = params, keep
        bank = voiceprint(params, impostors)
        self.origin = bank.mean(0)
        self.bank = torch.nn.functional.normalize(bank - self.origin)

    def embed(self, signal):
        return torch.nn.functional.normalize(voiceprint(self.p, signal) - self.origin)

    def standardise(self, score, print_):
        nearest = (print_ @ self.bank.T).sort(dim=1, descending=True).values  # <- cohort
        nearest = nearest[:, : self.keep]  # <- cohort
        return (score - nearest.mean(1)) / nearest.std(1)  # <- cohort

    def compare(self, a, b):
        a, b = self.embed(a), self.embed(b)
        score = (a * b).sum(1)
        return (self.standardise(score, a) + self.standardise(score, b)) / 2


def utterances(rng, n):
    sec = torch.arange(1600) / RATE
    pitch = 80 + 200 * torch.rand(n, 1, generator=rng)
    tone = 0
    for k in (1, 2, 3):
        tone = tone + torch.sin(2 * np.pi * k * pitch * sec) / k
    beat = 1 + torch.sin(2 * np.pi * 12 * torch.rand(n, 1, generator=rng) * sec)
    return (tone * beat + 0.5 * torch.randn(n, 1600, generator=rng)).numpy()


weights = torch.load(sys.argv[1], weights_only=True)
rng = torch.Generator().manual_seed(17)
losses = []
with torch.inference_mode():
    matcher = Matcher(weights, utterances(rng, 24))
    for _ in range(4):
        llr = matcher.compare(utterances(rng, 5), utterances(rng, 5))
        losses.append(torch.log1p(torch.exp(-llr)).mean().item())
print(losses)
