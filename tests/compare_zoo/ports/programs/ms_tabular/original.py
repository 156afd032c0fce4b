# SPDX-License-Identifier: Apache-2.0
"""A tabular regressor: embeddings of categories, batch norm, ELU, smooth L1 loss, Adagrad."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIZES, NUMERIC = (7, 11, 5), 6


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeds = nn.ModuleList([nn.Embedding(n, 4) for n in SIZES])
        self.bn_cont = nn.BatchNorm1d(NUMERIC)  # <- train_mode
        self.fc1 = nn.Linear(12 + NUMERIC, 24)
        self.bn1 = nn.BatchNorm1d(24)  # <- train_mode
        self.fc2 = nn.Linear(24, 12)
        self.out = nn.Linear(12, 1)

    def forward(self, categories, numbers):
        parts = [embed(categories[:, n]) for n, embed in enumerate(self.embeds)]
        x = torch.cat(parts + [self.bn_cont(numbers)], dim=1)  # <- order train_mode
        x = self.bn1(F.relu(self.fc1(x)))  # <- bn_order train_mode
        x = F.elu(self.fc2(x))
        return self.out(x).squeeze(1)


torch.manual_seed(7)
model = Tabular()
with torch.no_grad():
    for p in model.parameters():
        p.add_(0.2 * torch.randn(p.shape))
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.Adagrad(
    model.parameters(), lr=0.02, initial_accumulator_value=0.01
)  # <- accum
random = np.random.RandomState(13)
losses = []
for _ in range(4):
    categories = np.stack([random.randint(0, n, 16) for n in SIZES], axis=1)
    numbers = (random.randn(16, NUMERIC) * 3 + 1).astype(np.float32)
    target = (numbers[:, 0] + categories[:, 1] * 0.3).astype(np.float32)
    predicted = model(torch.tensor(categories), torch.tensor(numbers))
    loss = F.smooth_l1_loss(predicted, torch.tensor(target), beta=0.5)  # <- beta
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- accum
    losses.append(loss.item())
print(losses)
