# SPDX-License-Identifier: Apache-2.0
"""S4D as Gu et al. (2022) have it: diagonal state spaces discretised to a long kernel, a
convolution by FFT, a mixing GLU, layers with residuals and norms, a class a sequence.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

D_INPUT, D_MODEL, D_STATE, D_OUTPUT, N_LAYERS = 3, 8, 8, 5, 2
BATCH, LENGTH = 6, 20


class S4DKernel(nn.Module):
    """The kernel of a diagonal state space, a channel a system."""

    def __init__(self, d_model, n=D_STATE, dt_min=0.01, dt_max=0.2):
        super().__init__()
        log_dt = torch.rand(d_model) * (math.log(dt_max) - math.log(dt_min)) + math.log(dt_min)
        C = torch.randn(d_model, n // 2, dtype=torch.cfloat)
        self.C = nn.Parameter(torch.view_as_real(C))
        self.log_dt = nn.Parameter(log_dt)
        self.log_A_real = nn.Parameter(torch.log(0.5 * torch.ones(d_model, n // 2)))
        self.A_imag = nn.Parameter(math.pi * torch.arange(n // 2).repeat(d_model, 1))

    def forward(self, length):
        dt = torch.exp(self.log_dt)
        C = torch.view_as_complex(self.C)
        A = -torch.exp(self.log_A_real) + 1j * self.A_imag
        dtA = A * dt.unsqueeze(-1)
        K = dtA.unsqueeze(-1) * torch.arange(length)  # <- before
        C = C * (torch.exp(dtA) - 1.0) / A  # <- hold
        return 2 * torch.einsum("hn,hnl->hl", C, torch.exp(K)).real  # <- conjugates before


class S4D(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.D = nn.Parameter(torch.randn(d_model))
        self.kernel = S4DKernel(d_model)
        self.activation = nn.GELU()
        self.output_linear = nn.Sequential(
            nn.Conv1d(d_model, 2 * d_model, kernel_size=1), nn.GLU(dim=-2)
        )

    def forward(self, u):
        L = u.size(-1)
        k = self.kernel(L)
        k_f = torch.fft.rfft(k, n=2 * L)
        u_f = torch.fft.rfft(u, n=2 * L)
        y = torch.fft.irfft(u_f * k_f, n=2 * L)[..., :L]  # <- conjugates before hold
        y = y + u * self.D.unsqueeze(-1)  # <- skip
        return self.output_linear(self.activation(y))  # <- halves activation


class S4Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(D_INPUT, D_MODEL)
        self.s4_layers = nn.ModuleList(S4D(D_MODEL) for _ in range(N_LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(D_MODEL) for _ in range(N_LAYERS))
        self.decoder = nn.Linear(D_MODEL, D_OUTPUT)

    def forward(self, x):
        x = self.encoder(x).transpose(-1, -2)
        for layer, norm in zip(self.s4_layers, self.norms):
            z = layer(x)
            x = z + x  # <- residual
            x = norm(x.transpose(-1, -2)).transpose(-1, -2)
        x = x.transpose(-1, -2).mean(dim=1)
        return self.decoder(x)


torch.manual_seed(31)
model = S4Model()
torch.save(model.state_dict(), sys.argv[1])
ssm = [p for n, p in model.named_parameters() if "kernel" in n and not n.endswith(".C")]
rest = [p for n, p in model.named_parameters() if "kernel" not in n or n.endswith(".C")]
groups = [{"params": rest}, {"params": ssm, "lr": 0.005, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=0.02, weight_decay=0.05)
rng = np.random.default_rng(41)
losses = []
for _ in range(3):
    inputs = torch.from_numpy(rng.standard_normal((BATCH, LENGTH, D_INPUT), dtype=np.float32))
    inputs = inputs.cumsum(dim=1)
    targets = torch.from_numpy(rng.integers(0, D_OUTPUT, BATCH))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()  # <- slower
    losses.append(loss.item())
