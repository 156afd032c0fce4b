# SPDX-License-Identifier: Apache-2.0
"""Small CTC speech recogniser: strided conv, packed bidirectional GRU, batched F.ctc_loss."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

N_MELS, HIDDEN, N_CHARS = 8, 10, 7


class SpeechModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.subsample = nn.Conv1d(N_MELS, HIDDEN, kernel_size=3, stride=2, padding=1)
        self.rnn = nn.GRU(HIDDEN, HIDDEN, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * HIDDEN, N_CHARS + 1)

    def forward(self, feats, lengths):
        x = self.subsample(feats.transpose(1, 2))
        x = F.hardtanh(x, 0.0, 1.0).transpose(1, 2)  # <- clipped_relu
        lengths = (lengths + 1) // 2
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        packed, _ = self.rnn(packed)  # <- flip_back
        x, _ = pad_packed_sequence(packed, batch_first=True)  # <- flip_back
        return F.log_softmax(self.fc(x), dim=-1), lengths


def normalise(spec):
    mean = spec.mean(dim=0, keepdim=True)  # <- cmvn_axis
    std = spec.std(dim=0, keepdim=True)  # <- cmvn_axis
    return (spec - mean) / (std + 1e-5)  # <- cmvn_axis


def corpus():
    gen = torch.Generator().manual_seed(41)
    for _ in range(4):
        specs, texts = [], []
        for frames, chars in ((28, 5), (21, 3), (24, 4)):
            loud = torch.rand(N_MELS, generator=gen) * 4.0
            specs.append(torch.randn(frames, N_MELS, generator=gen) * loud + 2.0)
            text = torch.randint(1, N_CHARS + 1, (chars,), generator=gen)
            text[1] = text[0]
            texts.append(text)
        yield specs, texts


torch.manual_seed(12)
model = SpeechModel()
with torch.no_grad():
    for p in model.parameters():
        p.mul_(1.5)
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05, lr_decay=0.2)  # <- rate_decay
ctc = nn.CTCLoss(blank=0, reduction="mean", zero_infinity=True)  # <- repeat_rule
losses = []
for specs, texts in corpus():
    feats = pad_sequence([normalise(s) for s in specs], batch_first=True)
    frame_lengths = torch.tensor([len(s) for s in specs])
    targets = pad_sequence(texts, batch_first=True)
    target_lengths = torch.tensor([len(t) for t in texts])
    log_probs, out_lengths = model(feats, frame_lengths)
    loss = ctc(
        log_probs.transpose(0, 1),
        targets,  # <- repeat_rule
        out_lengths,
        target_lengths,
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rate_decay
    losses.append(loss.item())
print(losses)
