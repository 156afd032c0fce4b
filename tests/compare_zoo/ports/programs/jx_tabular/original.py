# SPDX-License-Identifier: Apache-2.0
"""A tabular net with embeddings of categories, weighted binary loss, RMSprop with momentum and StepLR."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SIZES, DIM, NUMERIC, HIDDEN, BATCH = (12, 7, 20), 6, 5, 32, 16


class TabularNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeds = nn.ModuleList(
            [nn.Embedding(n, DIM, padding_idx=0) for n in SIZES]
        )  # <- padding_row
        self.lin0 = nn.Linear(len(SIZES) * DIM + NUMERIC, HIDDEN)
        self.norm0 = nn.LayerNorm(HIDDEN)
        self.lin1 = nn.Linear(HIDDEN, HIDDEN)
        self.norm1 = nn.LayerNorm(HIDDEN)
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, categories, numbers):
        parts = [e(categories[:, i]) for i, e in enumerate(self.embeds)]  # <- padding_row
        x = torch.cat(parts + [numbers], dim=1)
        x = F.leaky_relu(self.norm0(self.lin0(x)), 0.2)  # <- slope
        x = F.leaky_relu(self.norm1(self.lin1(x)), 0.2)  # <- slope
        return self.out(x).squeeze(1)


torch.manual_seed(61)
model = TabularNet()
np.savez(sys.argv[1], **{name: p.detach().numpy() for name, p in model.named_parameters()})

optimizer = torch.optim.RMSprop(
    model.parameters(), lr=2e-3, alpha=0.99, momentum=0.9
)  # <- alpha stairs
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.3)  # <- stairs
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))  # <- pos_weight
random = np.random.RandomState(62)
losses = []
for _ in range(4):
    categories = np.stack([random.randint(0, n, BATCH) for n in SIZES], axis=1)
    categories[random.rand(BATCH, len(SIZES)) < 0.3] = 0
    numbers = random.randn(BATCH, NUMERIC).astype(np.float32)
    labels = (random.rand(BATCH) < 0.3).astype(np.float32)
    logits = model(torch.from_numpy(categories), torch.from_numpy(numbers))
    loss = criterion(logits, torch.from_numpy(labels))  # <- pos_weight
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- alpha stairs padding_row
    scheduler.step()  # <- stairs
    losses.append(loss.item())
print(losses)
