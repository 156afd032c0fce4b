# SPDX-License-Identifier: Apache-2.0
"""A long signal at twice its rate (pytorch issue 144643: beyond 2^23 samples places lose their
fraction).
"""

import torch

signal = torch.arange((1 << 22) + 64, dtype=torch.float32).remainder(2).view(1, 1, -1)
for _ in range(2):
    doubled = torch.nn.functional.interpolate(signal, scale_factor=2.0, mode="linear")
    print(doubled[0, 0, -4:].tolist())
