# SPDX-License-Identifier: Apache-2.0
"""BiLSTM sequence tagger over packed padded sentences; class-weighted loss, norm clipping,
Adagrad."""
import sys

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

VOCAB, EMB, HID, TAGS, IGNORE = 50, 12, 10, 5, -100


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, EMB, padding_idx=0)
        self.lstm = nn.LSTM(EMB, HID, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * HID, TAGS)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True,
                                      enforce_sorted=False)
        h, _ = self.lstm(packed)  # <- reverse_order
        h, _ = pad_packed_sequence(h, batch_first=True)  # <- reverse_order
        return self.out(h)


def sentences(g, n=8):
    toks, tags = [], []
    for _ in range(n):
        length = int(torch.randint(2, 10, (1,), generator=g))
        t = torch.randint(1, VOCAB, (length,), generator=g)
        toks.append(t)
        tags.append((t + torch.randint(0, 2, (length,), generator=g)) % TAGS)
    return toks, tags


torch.manual_seed(0)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
weight = torch.tensor([0.5, 1.0, 1.5, 1.0, 2.0])
criterion = nn.CrossEntropyLoss(weight=weight, ignore_index=IGNORE)  # <- weighted_mean
optimizer = torch.optim.Adagrad(  # <- accumulator rate_decay
    model.parameters(), lr=0.05, lr_decay=0.1,  # <- rate_decay
    initial_accumulator_value=0.01, eps=1e-8)  # <- accumulator

g = torch.Generator().manual_seed(1234)
losses = []
for step in range(5):
    toks, tags = sentences(g)
    lengths = torch.tensor([len(t) for t in toks])
    x = pad_sequence(toks, batch_first=True, padding_value=0)
    y = pad_sequence(tags, batch_first=True, padding_value=IGNORE)
    logits = model(x, lengths)
    loss = criterion(logits.reshape(-1, TAGS), y.reshape(-1))  # <- weighted_mean
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.25)  # <- clip_root
    optimizer.step()  # <- accumulator rate_decay
    losses.append(loss.item())
    print(f"step={step} loss={loss.item():.4f} |g|={norm:.3f}")
print(losses)
