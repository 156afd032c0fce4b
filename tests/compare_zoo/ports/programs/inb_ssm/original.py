# SPDX-License-Identifier: Apache-2.0
"""Sequence classifier of diagonal state-space layers (S4D), run as a long convolution by FFT."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class S4DKernel(nn.Module):
    """Convolution kernel of a diagonal SSM, discretised by zero-order hold."""

    def __init__(self, d_model, n=8):
        super().__init__()
        log_dt = torch.rand(d_model) * (math.log(0.2) - math.log(0.01)) + math.log(0.01)
        self.log_dt = nn.Parameter(log_dt)
        self.C = nn.Parameter(torch.randn(d_model, n // 2, 2))
        self.log_A_real = nn.Parameter(torch.log(0.5 * torch.rand(d_model, n // 2) + 0.2))
        self.A_imag = nn.Parameter(math.pi * torch.arange(n // 2).float().repeat(d_model, 1))

    def forward(self, length):
        dt = self.log_dt.exp()
        C = torch.view_as_complex(self.C)
        A = -torch.exp(self.log_A_real) + 1j * self.A_imag
        dtA = A * dt.unsqueeze(-1)
        K = dtA.unsqueeze(-1) * torch.arange(length)
        C = C * (torch.exp(dtA) - 1.0) / A  # <- hold
        return 2 * torch.einsum("hn,hnl->hl", C, torch.exp(K)).real  # <- conjugate


class S4D(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.kernel = S4DKernel(d_model)
        self.D = nn.Parameter(torch.randn(d_model))
        self.output_linear = nn.Conv1d(d_model, 2 * d_model, 1)

    def forward(self, u):  # (B, H, L)
        L = u.size(-1)
        k = self.kernel(L)
        k_f = torch.fft.rfft(k, n=2 * L)
        u_f = torch.fft.rfft(u, n=2 * L)
        y = torch.fft.irfft(u_f * k_f, n=2 * L)[..., :L]  # <- carry
        y = y + u * self.D.unsqueeze(-1)  # <- skip
        return F.glu(self.output_linear(F.gelu(y)), dim=-2)


class S4Model(nn.Module):
    def __init__(self, d_input=3, d_model=12, d_output=5, n_layers=3):
        super().__init__()
        self.encoder = nn.Linear(d_input, d_model)
        self.layers = nn.ModuleList(S4D(d_model) for _ in range(n_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers))
        self.decoder = nn.Linear(d_model, d_output)

    def forward(self, x):
        x = self.encoder(x).transpose(-1, -2)
        for layer, norm in zip(self.layers, self.norms):
            z = norm(x.transpose(-1, -2)).transpose(-1, -2)
            x = layer(z) + x
        x = x.transpose(-1, -2).mean(dim=1)  # <- pooling
        return self.decoder(x)


def main():
    torch.manual_seed(0)
    model = S4Model()
    for norm in model.norms:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.2)
    nn.init.normal_(model.decoder.weight, std=1.0)
    nn.init.normal_(model.encoder.weight, std=0.7)
    torch.save(model.state_dict(), sys.argv[1])
    model.eval()

    rng = torch.Generator().manual_seed(11)
    losses = []
    with torch.no_grad():
        for _ in range(4):
            phase = torch.rand(6, 1, 3, generator=rng) * 6.0
            rate = torch.rand(6, 1, 3, generator=rng) * 0.8
            x = torch.sin(phase + rate * torch.arange(40).view(1, 40, 1))
            x = x + 0.3 * torch.randn(6, 40, 3, generator=rng)
            y = torch.randint(0, 5, (6,), generator=rng)
            losses.append(F.cross_entropy(model(x), y).item())
    return losses


losses = main()
print(losses)
