# SPDX-License-Identifier: Apache-2.0
"""A sentiment tagger: embedding, bidirectional LSTM and a GRU cell as decoder, masked mean loss, SGD, clipped."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, EMBED, HIDDEN, TAGS, LENGTH = 45, 12, 10, 6, 8


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMBED, padding_idx=0)
        self.lstm = nn.LSTM(
            EMBED, HIDDEN, batch_first=True, bidirectional=True
        )  # <- bias_hh reverse
        self.bridge = nn.Linear(2 * HIDDEN, HIDDEN)
        self.cell = nn.GRUCell(2 * HIDDEN, HIDDEN)  # <- gates
        self.tag = nn.Linear(HIDDEN, TAGS)

    def forward(self, tokens):
        x = self.embed(tokens)
        states, (last, _) = self.lstm(x)  # <- bias_hh reverse
        h = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=-1)))  # <- reverse
        out = []
        for t in range(LENGTH):
            h = self.cell(states[:, t], h)  # <- gates reverse
            out.append(self.tag(h))
        return torch.stack(out, dim=1)


torch.manual_seed(4)
model = Tagger()
with torch.no_grad():
    for p in model.parameters():
        p.mul_(1.5)
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.9)
random = np.random.RandomState(10)
losses = []
for _ in range(4):
    tokens = random.randint(1, VOCAB, (5, LENGTH))
    length = random.randint(3, LENGTH + 1, (5, 1))
    mask = torch.tensor((np.arange(LENGTH) < length).astype(np.float32))
    tokens = torch.tensor(np.where(np.arange(LENGTH) < length, tokens, 0))
    tags = torch.tensor(random.randint(0, TAGS, (5, LENGTH)))
    logits = model(tokens)
    each = F.cross_entropy(logits.transpose(1, 2), tags, reduction="none")
    loss = (each * mask).sum() / mask.sum()  # <- loss_mean
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip
    optimizer.step()
    losses.append(loss.item())
print(losses)
