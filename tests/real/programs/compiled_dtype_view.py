# SPDX-License-Identifier: Apache-2.0
"""Packed counters read as halves of their words, then the words reset, compiled: inductor reads
after the reset.
"""

import torch


@torch.compile
def drained(words):
    halves = words.view(torch.int32) * 2
    halves.add_(1)
    words[:, 2:5] = 7
    return halves.view(torch.int64)


print(drained(torch.arange(-12, 12).reshape(4, 6)).sum())
