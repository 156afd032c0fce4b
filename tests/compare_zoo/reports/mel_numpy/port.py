# SPDX-License-Identifier: Apache-2.0
"""Sound tagger, spectrogram by numpy and the net in torch, clip by clip; average precision."""
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def load(path):
    sd = torch.load(path, weights_only=True)
    print("bytes:", sum(v.numel() * v.element_size() for v in sd.values()))
    gain = sd["bn.weight"] / (sd["bn.running_var"] + 1e-5).sqrt()
    sd["gain"], sd["shift"] = gain, sd["bn.bias"] - sd["bn.running_mean"] * gain
    return sd


def features(sd, clip):
    frames = np.lib.stride_tricks.sliding_window_view(clip.numpy(), 32)[::16]
    spectrum = np.fft.rfft(frames * sd["window"].numpy(), axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    return np.log(power @ sd["bank"].numpy() + 1e-2).astype(np.float32)


def tag(sd, clip):
    x = torch.from_numpy(features(sd, clip)) * sd["gain"] + sd["shift"]
    x = F.pad(x, (0, 0, 1, 1))
    taps = sd["conv.weight"].unbind(-1)
    n = len(x) - 2
    x = F.gelu(sum(x[k:k + n] @ w.T for k, w in enumerate(taps)) + sd["conv.bias"])
    pooled = torch.cat([x.mean(0), x.max(0).values])
    return torch.mv(sd["out.weight"], pooled) + sd["out.bias"]


def average_precision(scores, labels):
    order = np.argsort(-scores)
    hits = labels[order].astype(np.float64)
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float((precision * hits).sum() / max(hits.sum(), 1.0))


weights = load(sys.argv[1])
g = torch.Generator().manual_seed(126)
losses = []
with torch.inference_mode():
    for _ in range(4):
        wave = torch.randn(5, 256, generator=g)
        labels = torch.rand(5, 6, generator=g) < 0.4
        scores = np.stack([tag(weights, clip).numpy() for clip in wave])
        losses += [average_precision(s, t) for s, t in zip(scores, labels.numpy())]
        print(f"mean average precision {np.mean(losses[-5:]):.4f}")
print(losses)
