# SPDX-License-Identifier: Apache-2.0
"""Diagonal state space model run as a recurrence; mean squared error of one-step forecasts."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(27)
CH, STATES = 4, 6


class SSM(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_a = nn.Parameter(torch.randn(CH, STATES) * 0.5)
        self.b = nn.Parameter(torch.randn(CH, STATES))
        self.c = nn.Parameter(torch.randn(CH, STATES) * 0.5)
        self.skip = nn.Parameter(torch.randn(CH))
        self.mix = nn.Linear(CH, CH)

    def forward(self, u):
        decay = torch.exp(-torch.exp(self.log_a))
        h = torch.zeros(u.shape[0], CH, STATES)
        out = []
        for t in range(u.shape[1]):
            h = decay * h + self.b * u[:, t, :, None]
            out.append((h * self.c).sum(-1) + self.skip * u[:, t])
        return self.mix(F.gelu(torch.stack(out, 1)))


ssm = SSM()
torch.save(ssm.state_dict(), sys.argv[1])
ssm.eval()

g = torch.Generator().manual_seed(117)
losses = []
with torch.no_grad():
    for k in range(4):
        series = torch.randn(5, 21, CH, generator=g).cumsum(1) * 0.3
        pred = ssm(series[:, :-1])
        losses.append(F.mse_loss(pred, series[:, 1:]).item())
        print(f"batch {k} mse {losses[-1]:.5f}")
print(losses)
