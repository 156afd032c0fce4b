# SPDX-License-Identifier: Apache-2.0
"""A histogram's bins, compiled: quotients just below a whole number are rounded up before they are
floored (pytorch issue 197895).
"""

import torch


def bins(values: torch.Tensor, width: torch.Tensor) -> torch.Tensor:
    place = values // width
    return place.clamp(0, 63)


compiled = torch.compile(bins)
values, width = torch.linspace(0.1, 6.0, 60), torch.tensor(0.1)
for _ in range(3):
    places = compiled(values, width)
print(torch.bincount(places.long(), minlength=8)[:8].tolist())
