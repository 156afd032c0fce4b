# SPDX-License-Identifier: Apache-2.0
"""Sequence tagger: a two-layer bidirectional LSTM over packed sequences."""
import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

WORDS, TAGS, EMBED, HIDDEN, PAD_TAG = 70, 7, 16, 20, -1


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, EMBED, padding_idx=0)
        self.lstm = nn.LSTM(EMBED, HIDDEN, num_layers=2,  # <- gate_order back_start
                            batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * HIDDEN, TAGS)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True,  # <- back_start
                                      enforce_sorted=False)
        output, _ = self.lstm(packed)  # <- gate_order back_start
        output, _ = pad_packed_sequence(output, batch_first=True)  # <- back_start
        return self.head(output)


def read_batch(gen, size=6):
    sentences, tags = [], []
    for _ in range(size):
        n = int(torch.randint(3, 12, (1,), generator=gen))
        sentences.append(torch.randint(1, WORDS, (n,), generator=gen))
        tags.append((sentences[-1] * 3 + torch.arange(n)) % TAGS)
    lengths = torch.tensor([len(s) for s in sentences])
    return (pad_sequence(sentences, batch_first=True), lengths,
            pad_sequence(tags, batch_first=True, padding_value=PAD_TAG))


torch.manual_seed(0)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
weight = torch.ones(TAGS)
weight[0] = 0.3
criterion = nn.CrossEntropyLoss(weight=weight, ignore_index=PAD_TAG)  # <- class_mean
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, alpha=0.9, eps=1e-6)  # <- rms_inside
gen = torch.Generator().manual_seed(21)
losses = []
for step in range(4):
    words, lengths, tags = read_batch(gen)
    logits = model(words, lengths)
    loss = criterion(logits.flatten(0, 1), tags.flatten())  # <- class_mean
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.05)  # <- clip_whole
    optimizer.step()  # <- rms_inside clip_whole
    losses.append(loss.item())
print(losses)
