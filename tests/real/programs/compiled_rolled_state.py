# SPDX-License-Identifier: Apache-2.0
"""A recurrent model doubles some slots of its state and rolls it, in a module's buffer and compiled:
inductor copies rows that it has written already.
"""

import torch
from torch import nn


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("slots", torch.rand(8, 16))
        self.read = nn.Linear(16, 4)

    def forward(self, chosen):
        self.slots[chosen] = self.slots[chosen] * 2
        self.slots.copy_(self.slots.roll(1, 0))
        return self.read(self.slots)


torch.manual_seed(0)
memory = torch.compile(Memory())
with torch.no_grad():
    for _ in range(2):
        print(memory(torch.tensor([3, 1, 0])).sum())
