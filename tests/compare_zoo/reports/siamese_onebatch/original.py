# SPDX-License-Identifier: Apache-2.0
"""Siamese network verifying pairs of glyphs; contrastive loss of each batch of pairs."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(25)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 6, 3)
        self.b1 = nn.BatchNorm2d(6)
        self.c2 = nn.Conv2d(6, 12, 3)
        self.fc = nn.Linear(12 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.leaky_relu(self.b1(self.c1(x)), 0.1), 2)
        x = F.adaptive_max_pool2d(F.leaky_relu(self.c2(x), 0.1), 2)
        return F.normalize(self.fc(x.flatten(1)), dim=1)


tower = Tower()
with torch.no_grad():
    tower.b1.running_mean.normal_(0, 0.3)
    tower.b1.running_var.uniform_(0.3, 1.2)
    tower.b1.weight.uniform_(0.6, 1.4)
    tower.b1.bias.normal_(0, 0.3)
    tower.fc.weight.normal_(0, 0.3)
torch.save(tower.state_dict(), sys.argv[1])
tower.eval()

g = torch.Generator().manual_seed(115)
losses = []
with torch.no_grad():
    for b in range(4):
        left = torch.randn(9, 1, 12, 12, generator=g)
        same = torch.rand(9, generator=g) < 0.5
        other = torch.randn(9, 1, 12, 12, generator=g)
        right = torch.where(same.view(-1, 1, 1, 1), left + 0.4 * other, other)
        d = (tower(left) - tower(right)).pow(2).sum(1).sqrt()
        loss = torch.where(same, d.pow(2), (1.0 - d).clamp(min=0).pow(2)).mean()
        losses.append(loss.item())
        print(f"batch {b}: contrastive loss {losses[-1]:.4f}")
print(losses)
