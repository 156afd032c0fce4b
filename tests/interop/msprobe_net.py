# SPDX-License-Identifier: Apache-2.0
"""Record a small PyTorch network on CPU with msprobe: python msprobe_net.py CONFIG.

Run by test_msprobe_producer.py with the interpreter that has mindstudio-probe.
"""

from __future__ import annotations

import sys

from msprobe.pytorch import PrecisionDebugger, seed_all

seed_all(7)

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, width)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.act = nn.GELU()

    def forward(self, x):
        return x + self.act(self.conv(self.norm(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(50, 8)
        self.blocks = nn.ModuleList([Block(8) for _ in range(2)])
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, 10)

    def forward(self, tokens):
        x = self.emb(tokens).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        y, _ = self.lstm(x.transpose(1, 2))
        y = torch.cat([y[:, :-1], y[:, 1:]], dim=1)
        return self.head(y.mean(1).to(torch.bfloat16).to(torch.float32))


def main() -> None:
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    debugger = PrecisionDebugger(config_path=sys.argv[1])
    for step in range(2):
        tokens = torch.randint(0, 50, (4, 12), generator=torch.Generator().manual_seed(step))
        debugger.start(model=net)
        loss = nn.functional.cross_entropy(net(tokens), torch.arange(4) % 10)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        debugger.stop()
        debugger.step()


main()
