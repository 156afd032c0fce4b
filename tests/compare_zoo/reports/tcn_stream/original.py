# SPDX-License-Identifier: Apache-2.0
"""Audio denoiser of dilated causal convolutions on whole clips; reports the SNR in decibel."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)


class CausalConv(nn.Module):
    def __init__(self, ci, co, k, dilation):
        super().__init__()
        self.pad = (k - 1) * dilation
        self.conv = nn.Conv1d(ci, co, k, dilation=dilation)

    def forward(self, x):
        return self.conv(F.pad(x, (self.pad, 0)))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = CausalConv(1, 8, 3, 1)
        self.b = CausalConv(8, 8, 3, 2)
        self.c = CausalConv(8, 8, 3, 4)
        self.out = nn.Conv1d(8, 1, 1)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        h = h + torch.tanh(self.b(h))
        h = h + torch.tanh(self.c(h))
        return x - self.out(h)


net = Denoiser()
for p in net.parameters():
    nn.init.normal_(p, std=0.35)
torch.save(net.state_dict(), sys.argv[1])
net.eval()

gen = torch.Generator().manual_seed(107)
losses = []
with torch.no_grad():
    for clip in range(4):
        freq = torch.rand(1, generator=gen) * 0.3 + 0.05
        clean = torch.sin(freq * torch.arange(96.0)).view(1, 1, -1)
        noisy = clean + 0.3 * torch.randn(1, 1, 96, generator=gen)
        restored = net(noisy)
        snr = clean.pow(2).sum() / (restored - clean).pow(2).sum()
        losses.append(10 * math.log10(snr.item()))
        print(f"clip {clip}: {losses[-1]:.2f} dB")
print(losses)
