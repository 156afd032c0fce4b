# SPDX-License-Identifier: Apache-2.0
"""Layers of an inference loop that spare memory (pytorch issue 48900: addmm with its operand as
`out` gives other numbers).
"""

import torch

torch.manual_seed(0)
layers = [(torch.randn(16, 16) / 4, torch.randn(16)) for _ in range(3)]
with torch.no_grad():
    for _ in range(3):
        hidden = torch.randn(16, 16)
        for weight, bias in layers:
            torch.addmm(bias, hidden, weight, out=hidden)
            hidden.relu_()
        print(hidden.mean().item())
