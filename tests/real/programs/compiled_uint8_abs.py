# SPDX-License-Identifier: Apache-2.0
"""A level of 8 bits that is mirrored and halved, compiled: inductor's absolute value is an int, and
does not wrap.
"""

import torch


@torch.compile
def mirrored(level):
    return (-torch.abs(level)) // 2


for value in (37, 200):
    print(int(mirrored(torch.tensor(value, dtype=torch.uint8))))
