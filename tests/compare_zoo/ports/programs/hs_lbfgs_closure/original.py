# SPDX-License-Identifier: Apache-2.0
"""Full-batch ridge softmax network trained by torch.optim.LBFGS with a closure, data grown between stages."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(71)

FEATURES, HIDDEN, CLASSES, RIDGE, STEPS = 7, 9, 4, 0.05, 5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.skip = nn.Linear(FEATURES, CLASSES, bias=False)
        self.second = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.second(F.softplus(self.first(x))) + self.skip(x)


model = Net()
torch.save(model.state_dict(), sys.argv[1])

g = torch.Generator().manual_seed(15)
x = torch.randn(60, FEATURES, generator=g)
true = torch.randn(FEATURES, CLASSES, generator=g)
y = (x @ true + torch.randn(60, CLASSES, generator=g)).argmax(1)
importance = 0.5 + torch.rand(60, generator=g)

optimizer = torch.optim.LBFGS(model.parameters(), lr=0.4, max_iter=4, history_size=5)


def closure():
    optimizer.zero_grad()
    per_row = F.cross_entropy(model(x), y, reduction="none")
    loss = (importance * per_row).sum() / importance.sum()
    for p in model.parameters():
        loss = loss + 0.5 * RIDGE * p.pow(2).sum()
    loss.backward()
    return loss


losses = []
for step in range(STEPS):
    loss = optimizer.step(closure)          # the loss before the step's four iterations
    losses.append(loss.item())

print(losses)
