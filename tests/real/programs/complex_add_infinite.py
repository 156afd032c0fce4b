# SPDX-License-Identifier: Apache-2.0
"""Spectra with a pole, added (pytorch issue 82510: infinity plus infinity is not a number in the
other component).
"""

import torch

torch.manual_seed(0)
for _ in range(3):
    response = torch.fft.rfft(torch.randn(64))
    response[5] = complex(float("inf"), 0.0)
    both = response + response
    print(both[5].item())
