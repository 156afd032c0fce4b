# SPDX-License-Identifier: Apache-2.0
"""Streaming denoiser: chunks of 24 samples with carried context; mean squared error per chunk."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
CHUNK = 24


class Stream:
    """Keeps, for each convolution, the inputs that the next chunk still needs."""

    def __init__(self, weights):
        self.w = weights
        self.reset()

    def reset(self):
        shapes = {"a": (1, 1, 2), "b": (1, 8, 4), "c": (1, 8, 8)}
        self.past = {name: torch.zeros(shape) for name, shape in shapes.items()}

    def conv(self, name, x, dilation):
        full = torch.cat([self.past[name], x], -1)
        self.past[name] = full[..., -self.past[name].shape[-1]:]
        w, b = self.w[f"{name}.conv.weight"], self.w[f"{name}.conv.bias"]
        return F.conv1d(full, w, b, dilation=dilation).tanh()

    def push(self, x):
        h = self.conv("a", x, 1)
        h = h + self.conv("b", h, 2)
        h = h + self.conv("c", h, 4)
        return x - F.conv1d(h, self.w["out.weight"], self.w["out.bias"])


stream = Stream(torch.load(sys.argv[1], weights_only=True))
gen = torch.Generator().manual_seed(107)
losses = []
with torch.inference_mode():
    for clip in range(4):
        freq = torch.rand(1, generator=gen) * 0.3 + 0.05
        clean = torch.sin(freq * torch.arange(96.0)).view(1, 1, -1)
        noisy = clean + 0.3 * torch.randn(1, 1, 96, generator=gen)
        stream.reset()
        for lo in range(0, 96, CHUNK):
            piece = stream.push(noisy[..., lo:lo + CHUNK])
            losses.append(F.mse_loss(piece, clean[..., lo:lo + CHUNK]).item())
        print(f"clip {clip}:", " ".join(f"{v:.4f}" for v in losses[-4:]))
print(losses)
