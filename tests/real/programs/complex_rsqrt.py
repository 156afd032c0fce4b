# SPDX-License-Identifier: Apache-2.0
"""Spectral whitening with an infinite bin (pytorch issue 156152: not a number where 0 is right)."""

import torch

torch.manual_seed(0)
for _ in range(3):
    spectrum = torch.fft.rfft(torch.randn(64))
    spectrum[3] = complex(0, float("inf"))
    print(torch.rsqrt(spectrum)[3].item())
