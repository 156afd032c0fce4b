# SPDX-License-Identifier: Apache-2.0
"""A bidirectional LSTM over padded sequences, classified by its final states; SGD, clipped."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence

VOCAB, EMBED, HIDDEN, LENGTH, CLASSES, BATCH = 25, 8, 6, 6, 4, 10


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMBED)
        self.lstm = nn.LSTM(EMBED, HIDDEN, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * HIDDEN, CLASSES)

    def forward(self, ids, lengths):
        x = self.embed(ids)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)  # <- mask
        _, (h, _) = self.lstm(packed)  # <- mask gates recurrent_bias suffix
        return self.fc(torch.cat([h[0], h[1]], dim=1))


torch.manual_seed(17)
model = Classifier()
for name, p in model.lstm.named_parameters():
    if name.startswith("bias_hh"):
        p.requires_grad_(False)  # of the two biases one learns
with torch.no_grad():
    for p in model.lstm.parameters():
        p.mul_(1.5)
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(trained, lr=0.8, momentum=0.9)
criterion = nn.CrossEntropyLoss(reduction="sum")
rng = np.random.RandomState(41)
losses = []
for _ in range(3):
    lengths = rng.randint(2, LENGTH + 1, BATCH)
    ids = rng.randint(1, VOCAB, (BATCH, LENGTH))
    ids[np.arange(LENGTH)[None] >= lengths[:, None]] = 0
    labels = torch.from_numpy(ids[:, 0] % CLASSES)
    logits = model(torch.from_numpy(ids), torch.from_numpy(lengths))
    loss = criterion(logits, labels) / BATCH
    optimizer.zero_grad()
    loss.backward()
    clip_grad_norm_(trained, 0.25)  # <- clip
    optimizer.step()  # <- clip
    losses.append(loss.item())
print(losses)
