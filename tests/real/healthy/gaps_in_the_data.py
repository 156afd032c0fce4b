# SPDX-License-Identifier: Apache-2.0
"""Missing values that are asked for, counted and left out; infinities as bounds."""

import torch

torch.manual_seed(0)
for _ in range(3):
    rates = torch.rand(37)
    rates[::7] = float("nan")
    present = rates[~rates.isnan()]
    print(rates.nanmean().item(), rates.nan_to_num(0.5).mean().item(), rates.nanmedian().item())
    print(
        torch.special.gammainc(present + 1, present).mean().item(),
        torch.igammac(present, present).sum(),
    )
    print(
        present.clamp(-float("inf"), 0.5).mean().item(), torch.fmax(present, present.flip(0)).sum()
    )
    print(
        torch.logaddexp(present, present.log()).mean().item(),
        torch.logsumexp(100 * present, 0).item(),
    )
