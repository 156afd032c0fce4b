# SPDX-License-Identifier: Apache-2.0
"""Complex numbers at branch cuts, at 0, and beside large ones."""

import torch

torch.manual_seed(0)
for _ in range(3):
    spectrum = torch.fft.rfft(torch.randn(4, 67))
    spectrum[:, 0] = 0
    print(spectrum.abs().mean().item(), spectrum.angle().std().item(), spectrum.sgn()[0, 0].item())
    print((spectrum + spectrum.conj()).imag.abs().max().item(), (spectrum - 1e6).abs().min().item())
    cut = torch.complex(-torch.rand(33), torch.zeros(33))
    print(
        cut.sqrt().mean().item(), cut.log().imag.mean().item(), (1 / (cut - 1j)).abs().mean().item()
    )
    print(
        torch.fft.irfft(spectrum, n=67).std().item(), torch.exp(1j * torch.randn(33)).abs().mean()
    )
    print(
        (spectrum.real + 3 * spectrum.imag).mean().item(),
        torch.add(cut, cut, alpha=2).mean().item(),
    )
