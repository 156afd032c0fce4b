# SPDX-License-Identifier: Apache-2.0
"""A decoder in float16 whose sums leave the type (pytorch issue 153700: not a number in place of
infinity).
"""

import torch

torch.manual_seed(0)
kernel = torch.full((7, 3, 5, 6), -9990.0, dtype=torch.float16)
with torch.no_grad():
    for _ in range(3):
        image = (torch.rand(2, 7, 9, 11) * 9 - 4).half()
        decoded = torch.nn.functional.conv_transpose2d(image, kernel, padding=2)
        print(decoded.isnan().sum().item(), decoded.isinf().sum().item())
