# SPDX-License-Identifier: Apache-2.0
"""Learn embeddings in which two views of a picture lie close together."""

import torch
from torch import nn


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, left, right):
        apart = self.embed(left) - self.embed(right)
        return apart.pow(2).sum(dim=1).sqrt()


def main():
    torch.manual_seed(0)
    model = Pairs()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    pictures = torch.randn(64, 32)
    for step in range(6):
        chosen = torch.randperm(64)[:16]
        left, right = pictures[chosen], pictures[chosen].clone()
        noise = 0.1 * torch.randn(16, 32)
        if step == 4:
            noise[3] = 0.0  # an augmentation that changed nothing
        loss = model(left, right + noise).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}  loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
