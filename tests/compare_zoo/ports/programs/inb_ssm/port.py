# SPDX-License-Identifier: Apache-2.0
"""Streaming classifier: the diagonal state-space layers step by step, one sample at a time in."""
import sys

import torch
from torch import nn


class DiagonalCell(nn.Module):
    """x' = A x + B u, y = 2 Re(C x) + D u, with a complex state of (batch, channel, mode)."""

    def __init__(self, channels, modes=4):
        super().__init__()
        self.register_buffer("decay", torch.zeros(channels, modes, dtype=torch.complex64))
        self.register_buffer("drive", torch.zeros(channels, modes, dtype=torch.complex64))
        self.register_buffer("readout", torch.zeros(channels, modes, dtype=torch.complex64))
        self.register_buffer("feed", torch.zeros(channels))
        self.scale, self.shift = (nn.Parameter(torch.zeros(channels)) for _ in range(2))
        self.mix = nn.Linear(channels, 2 * channels)
        self.state = None

    def import_(self, src, i):
        layer = f"layers.{i}."
        step = src[layer + "kernel.log_dt"].exp()[:, None]
        pole = torch.complex(-src[layer + "kernel.log_A_real"].exp(), src[layer + "kernel.A_imag"])
        self.decay.copy_(torch.exp(pole * step))
        self.drive.copy_((self.decay - 1) / pole)  # <- hold
        self.readout.copy_(torch.view_as_complex(src[layer + "kernel.C"]))
        self.feed.copy_(src[layer + "D"])
        self.mix.weight.data.copy_(src[layer + "output_linear.weight"][:, :, 0])
        self.mix.bias.data.copy_(src[layer + "output_linear.bias"])
        self.scale.data.copy_(src[f"norms.{i}.weight"])
        self.shift.data.copy_(src[f"norms.{i}.bias"])

    def reset(self, batch):
        self.state = torch.zeros(batch, *self.decay.shape, dtype=torch.complex64)

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        u = (x - mean) * torch.rsqrt(var + 1e-5) * self.scale + self.shift
        self.state = self.decay * self.state + self.drive * u.unsqueeze(-1)  # <- hold carry
        y = 2 * (self.readout * self.state).sum(-1).real  # <- conjugate carry
        y = y + self.feed * u  # <- skip
        value, gate = self.mix(nn.functional.gelu(y)).chunk(2, -1)
        return x + value * torch.sigmoid(gate)


class Streamer(nn.Module):
    def __init__(self, inputs=3, channels=12, classes=5, depth=3):
        super().__init__()
        self.inp = nn.Linear(inputs, channels)
        self.cells = nn.ModuleList(DiagonalCell(channels) for _ in range(depth))
        self.out = nn.Linear(channels, classes)

    @classmethod
    def from_checkpoint(cls, path):
        src, net = torch.load(path, weights_only=True), cls()
        with torch.no_grad():
            for mine, theirs in ((net.inp, "encoder"), (net.out, "decoder")):
                mine.weight.copy_(src[theirs + ".weight"])
                mine.bias.copy_(src[theirs + ".bias"])
        for i, cell in enumerate(net.cells):
            cell.import_(src, i)
        return net.eval()

    def run(self, signal):
        for cell in self.cells:
            cell.reset(signal.shape[0])  # <- carry
        running = 0.0
        for t in range(signal.shape[1]):
            h = self.inp(signal[:, t])
            for cell in self.cells:
                h = cell(h)
            running = running + (h - running) / (t + 1)  # <- pooling
        return self.out(running)  # <- pooling


def stream(seed=11, batches=4):
    g = torch.Generator().manual_seed(seed)
    ticks = torch.arange(40)[None, :, None]
    for _ in range(batches):
        phase = 6.0 * torch.rand(6, 1, 3, generator=g)
        rate = 0.8 * torch.rand(6, 1, 3, generator=g)
        noise = torch.randn(6, 40, 3, generator=g)
        yield torch.sin(phase + rate * ticks) + 0.3 * noise, torch.randint(5, (6,), generator=g)


net = Streamer.from_checkpoint(sys.argv[1])
losses = []
with torch.inference_mode():
    for signal, label in stream():
        logit = net.run(signal)
        right = logit.gather(1, label[:, None]).squeeze(1)
        losses.append((logit.logsumexp(1) - right).mean().item())
print(losses)
