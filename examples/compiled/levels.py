# SPDX-License-Identifier: Apache-2.0
"""Brightness of pictures, mirrored and halved. Compiled, bright pictures come out dark."""

import torch


@torch.compile
def mirrored(level):
    return (-torch.abs(level)) // 2


for value in (37, 200):
    print(int(mirrored(torch.tensor(value, dtype=torch.uint8))))
