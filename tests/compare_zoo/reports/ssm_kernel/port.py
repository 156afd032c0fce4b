# SPDX-License-Identifier: Apache-2.0
"""State space model as one causal convolution, one series at a time; explained variance."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def impulse_response(p, length):
    """Kernel of the recurrence for each channel, time running backwards for conv1d."""
    decay = torch.exp(-torch.exp(p["log_a"]))
    powers = decay[..., None] ** torch.arange(length)
    kernel = torch.einsum("cs,cs,cst->ct", p["b"], p["c"], powers)
    kernel[:, 0] += p["skip"]
    return kernel.flip(-1)[:, None]


def apply_model(p, kernel, series):
    x = F.pad(series.T[None], (kernel.shape[-1] - 1, 0))
    y = F.gelu(F.conv1d(x, kernel, groups=kernel.shape[0]))[0].T
    return F.linear(y, p["mix.weight"], p["mix.bias"])


with torch.no_grad():
    params = torch.load(sys.argv[1], weights_only=True)
    kernel = impulse_response(params, 20)
    g = torch.Generator().manual_seed(117)
    losses = []
    for k in range(4):
        batch = torch.randn(5, 21, 4, generator=g).cumsum(1) * 0.3
        for series in batch:
            pred = apply_model(params, kernel, series[:-1])
            target = series[1:].double()
            ratio = (target - pred.double()).var() / target.var()
            losses.append(1.0 - ratio.item())
        print(f"batch {k}: explained variance", [round(v, 3) for v in losses[-5:]])
print(losses)
