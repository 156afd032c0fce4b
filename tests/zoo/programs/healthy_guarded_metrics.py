# SPDX-License-Identifier: Apache-2.0
"""A graph network with isolated nodes, its degrees guarded as in gcn_norm; IoU with absent classes
under nanmean.
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)
NODES, CLASSES = 12, 5
SOURCE, TARGET = torch.randint(0, 9, (2, 30))  # nodes 9 to 11 have no edge


class Convolution(nn.Module):
    """x' = D^-1/2 A D^-1/2 x W, degrees of 0 left out."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        degrees = torch.zeros(NODES).scatter_add_(0, TARGET, torch.ones(len(TARGET)))
        root = degrees.pow_(-0.5)
        root.masked_fill_(root == float("inf"), 0.0)
        messages = self.linear(x)[SOURCE] * (root[SOURCE] * root[TARGET]).view(-1, 1)
        return torch.zeros(NODES, messages.shape[1]).index_add(0, TARGET, messages)


def mean_iou(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    found, wanted = F.one_hot(logits.argmax(-1), CLASSES).bool(), F.one_hot(classes, CLASSES).bool()
    return ((found & wanted).sum(0) / (found | wanted).sum(0)).nanmean()


model = nn.ModuleList([Convolution(4, 8), Convolution(8, CLASSES)])
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
features, classes = torch.randn(NODES, 4), torch.randint(0, CLASSES - 1, (NODES,))
for _ in range(4):
    optimizer.zero_grad()
    logits = model[1](F.relu(model[0](features)))
    loss = F.cross_entropy(logits, classes)
    loss.backward()
    optimizer.step()
    print(float(loss.detach()).hex(), float(mean_iou(logits.detach(), classes)).hex())
