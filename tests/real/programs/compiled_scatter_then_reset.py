# SPDX-License-Identifier: Apache-2.0
"""A window is put into a copy of an accumulator, and the accumulator reset, compiled: inductor puts it
into the accumulator itself, and returns zeros.
"""

import torch


@torch.compile
def flushed(total, window):
    out = torch.slice_scatter(total, window[1:3], dim=0, start=1, end=3)
    total.zero_()
    return out


print(flushed(torch.arange(24).reshape(4, 6), torch.arange(-12, 12).reshape(4, 6)).sum())
