# SPDX-License-Identifier: Apache-2.0
"""One program for two machines. On the accelerator its products are made in half precision."""

import sys

import torch
from torch import nn

HALF = "--half" in sys.argv


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)) ** 2)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block(), Block())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = 40.0 * torch.randn(32, 64)
    for step in range(2):
        with torch.autocast("cpu", torch.float16, enabled=HALF):
            loss = model(data).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}  loss {loss.item():.4g}", flush=True)


if __name__ == "__main__":
    main()
