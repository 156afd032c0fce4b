# SPDX-License-Identifier: Apache-2.0
"""A text CNN (wide convolutions of three widths, max over time) with RMSprop."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, EMBED, FILTERS, WIDTHS, LENGTH, BATCH = 40, 10, 8, (2, 3, 4), 12, 16


class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMBED)
        self.convs = nn.ModuleList(
            [nn.Conv1d(EMBED, FILTERS, width, padding=width - 1) for width in WIDTHS]  # <- wide
        )
        self.hidden = nn.Linear(FILTERS * len(WIDTHS), 12)
        self.out = nn.Linear(12, 1)

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        pooled = []
        for conv in self.convs:
            h = torch.tanh(conv(x))  # <- wide biases
            pooled.append(h.max(dim=2).values)
        x = torch.cat(pooled, dim=1)
        x = F.silu(self.hidden(x))
        return self.out(x).squeeze(1)  # <- logits


torch.manual_seed(13)
model = TextCNN()
with torch.no_grad():
    for conv in model.convs:
        conv.bias.add_(0.3)
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)  # <- rho eps
criterion = nn.BCEWithLogitsLoss()  # <- logits
rng = np.random.RandomState(31)
losses = []
for _ in range(4):
    ids = rng.randint(0, VOCAB, (BATCH, LENGTH))
    labels = (ids[:, :4].sum(1) > 2 * VOCAB).astype("float32")
    loss = criterion(model(torch.from_numpy(ids)), torch.from_numpy(labels))  # <- logits
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rho eps
    losses.append(loss.item())
print(losses)
