# SPDX-License-Identifier: Apache-2.0
"""Small speech recogniser: convolution front end, packed bidirectional GRU, CTC, SpecAugment."""
import math
import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.set_num_threads(1)
torch.manual_seed(3)

MELS, CONV, HIDDEN, VOCAB, BATCH, STEPS = 10, 12, 9, 7, 4, 5


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(MELS, CONV, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(CONV)
        self.gru = nn.GRU(CONV, HIDDEN, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(2 * HIDDEN, VOCAB)

    def forward(self, features, lengths):
        x = self.conv(features.transpose(1, 2)).transpose(1, 2)
        x = torch.relu(self.norm(x))
        lengths = (lengths + 1) // 2
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        return self.classifier(x).log_softmax(-1), lengths


class SpecAugment:
    """One frequency band and two time bands per utterance are set to zero."""

    def __init__(self, generator, freq=3, time=4):
        self.generator, self.freq, self.time = generator, freq, time

    def band(self, limit, size):
        width = int(torch.randint(0, limit + 1, (1,), generator=self.generator))
        start = int(torch.randint(0, size - width + 1, (1,), generator=self.generator))
        return slice(start, start + width)

    def __call__(self, x):
        x = x.clone()
        x[:, self.band(self.freq, MELS)] = 0.0
        for _ in range(2):
            x[self.band(self.time, len(x))] = 0.0
        return x


model = Recogniser()
torch.save(model.state_dict(), sys.argv[1])

corpus_rng = torch.Generator().manual_seed(8)
corpus = []
for _ in range(10):
    frames = int(torch.randint(22, 40, (1,), generator=corpus_rng))
    tokens = int(torch.randint(2, 6, (1,), generator=corpus_rng))
    corpus.append((torch.randn(frames, MELS, generator=corpus_rng),
                   torch.randint(1, VOCAB, (tokens,), generator=corpus_rng)))

run_rng = torch.Generator().manual_seed(9)
augment = SpecAugment(run_rng)
criterion = nn.CTCLoss(blank=0, reduction="mean", zero_infinity=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
noam = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: 0.2 * CONV ** -0.5 * min((s + 1) ** -0.5, (s + 1) * 3 ** -1.5))

losses = []
for step in range(STEPS):
    picked = torch.randperm(len(corpus), generator=run_rng)[:BATCH].tolist()
    features = [augment(corpus[i][0]) for i in picked]
    targets = [corpus[i][1] for i in picked]
    lengths = torch.tensor([len(f) for f in features])
    log_probs, out_lengths = model(pad_sequence(features, batch_first=True), lengths)
    loss = criterion(log_probs.transpose(0, 1), pad_sequence(targets, batch_first=True),
                     out_lengths, torch.tensor([len(t) for t in targets]))
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    if math.isfinite(norm):
        optimizer.step()
    noam.step()
    losses.append(loss.item())

print(losses)
