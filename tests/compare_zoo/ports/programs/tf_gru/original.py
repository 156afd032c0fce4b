# SPDX-License-Identifier: Apache-2.0
"""A GRU language model with tied embeddings on padded sequences; Adagrad with a decaying rate."""

import sys

import numpy as np
import torch
from torch import nn

VOCAB, HIDDEN, LENGTH, BATCH, PAD = 22, 10, 7, 8, 0


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, ids):
        x = self.embed(ids) * HIDDEN**0.5
        h, _ = self.gru(x)  # <- gates hidden_bias
        return h @ self.embed.weight.T + self.bias


torch.manual_seed(23)
model = LanguageModel()
with torch.no_grad():
    model.embed.weight.mul_(0.3)
    for p in model.gru.parameters():
        p.mul_(2.0)
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)  # <- accumulator
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))  # <- late
criterion = nn.CrossEntropyLoss(ignore_index=PAD)  # <- ignored
rng = np.random.RandomState(61)
losses = []
for _ in range(4):
    ids = rng.randint(1, VOCAB, (BATCH, LENGTH + 1))
    ids[:, 1::2] = (ids[:, :-1:2] * 2) % (VOCAB - 1) + 1
    lengths = rng.randint(3, LENGTH + 2, BATCH)
    ids[np.arange(LENGTH + 1)[None] >= lengths[:, None]] = PAD
    batch = torch.from_numpy(ids)
    logits = model(batch[:, :-1])
    loss = criterion(logits.flatten(0, 1), batch[:, 1:].flatten())  # <- ignored
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- accumulator late
    schedule.step()  # <- late
    losses.append(loss.item())
print(losses)
