# SPDX-License-Identifier: Apache-2.0
"""A weighted classifier on a small table with a frozen first layer, an L2 term and a rate by epoch."""

import sys

import numpy as np
import torch
from torch import nn

FEATURES, WIDTH, CLASSES, ROWS, DECAY = 6, 12, 3, 20, 0.06


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(FEATURES, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-5)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = torch.relu(self.frozen(x))  # <- frozen
        x = self.hidden(x)
        x = self.norm(x)  # <- gamma
        return self.out(torch.relu(x))


torch.manual_seed(47)
model = Classifier()
with torch.no_grad():
    model.norm.weight.add_(0.2 * torch.randn(WIDTH))
    model.norm.bias.add_(0.2 * torch.randn(WIDTH))
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

model.frozen.requires_grad_(False)  # <- frozen
trained = [p for p in model.parameters() if p.requires_grad]  # <- frozen
optimizer = torch.optim.Adam(trained, lr=0.02)  # <- frozen
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)  # <- by_epoch
weights = torch.tensor([1.0, 4.0, 0.5])  # <- weights
criterion = nn.CrossEntropyLoss(weight=weights)  # <- weights
rng = np.random.RandomState(97)
x = rng.randn(ROWS, FEATURES).astype("float32")
y = rng.randint(0, CLASSES, ROWS)
inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
losses = []
for _ in range(4):
    loss = criterion(model(inputs), targets)  # <- weights
    penalty = model.hidden.weight.square().sum()  # <- twice
    loss = loss + 0.5 * DECAY * penalty  # <- twice
    optimizer.zero_grad()
    loss.backward()  # <- frozen
    optimizer.step()  # <- frozen by_epoch
    schedule.step()  # <- by_epoch
    losses.append(loss.item())
print(losses)
