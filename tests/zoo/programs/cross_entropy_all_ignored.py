# SPDX-License-Identifier: Apache-2.0
"""Masked language model: one batch masks no token at all, so the mean is over nothing."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 40))
criterion = nn.CrossEntropyLoss(ignore_index=-100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(4):
    tokens = torch.randint(40, (4, 10))
    labels = tokens.clone()
    labels[torch.rand(4, 10) > (0.5 if step != 2 else -1.0)] = -100
    loss = criterion(model(tokens).flatten(0, 1), labels.flatten())  # <- origin
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
