# SPDX-License-Identifier: Apache-2.0
"""A speech recogniser: features, a strided convolution, a bidirectional GRU, CTC, OneCycle."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

N_MELS, HIDDEN, LABELS, BATCH, FRAMES = 10, 12, 7, 4, 36
STEPS = 5


class SpeechModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(N_MELS, 16, kernel_size=5, stride=2, padding=2)
        self.bn1 = nn.BatchNorm1d(16)
        self.conv2 = nn.Conv1d(16, 16, kernel_size=3, padding=2, dilation=2)
        self.rnn = nn.GRU(16, HIDDEN, num_layers=2, bidirectional=True, batch_first=True)
        self.norm = nn.LayerNorm(2 * HIDDEN)
        self.fc = nn.Linear(2 * HIDDEN, LABELS)

    def forward(self, features):
        x = F.hardtanh(self.bn1(self.conv1(features)), 0.0, 4.0)
        x = x + F.gelu(self.conv2(x))
        x, _ = self.rnn(x.transpose(1, 2))  # <- reset_gate
        x = self.fc(self.norm(x))
        return F.log_softmax(x, dim=-1)


def normalise(features, lengths):
    """Each utterance and band by its own frames, without the padding."""
    mask = (torch.arange(features.shape[-1]) < lengths[:, None])[:, None]
    n = lengths[:, None, None]
    mean = (features * mask).sum(-1, keepdim=True) / n
    centred = (features - mean) * mask
    std = (centred.pow(2).sum(-1, keepdim=True) / (n - 1)).sqrt()  # <- biased_std
    return centred / (std + 1e-5)  # <- biased_std


def batch(generator):
    features = torch.randn(BATCH, N_MELS, FRAMES, generator=generator)
    lengths = torch.tensor([36, 30, 34, 26])
    features = torch.cat([features[..., :1], features[..., 1:] - 0.97 * features[..., :-1]], -1)
    targets = torch.randint(1, LABELS, (BATCH, 6), generator=generator)
    targets[:, 3] = targets[:, 2]
    return normalise(features, lengths), lengths, targets, torch.tensor([6, 4, 5, 3])


torch.manual_seed(21)
model = SpeechModel()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CTCLoss(blank=0, reduction="mean")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(  # <- one_cycle
    optimizer, max_lr=0.2, total_steps=STEPS, pct_start=0.4, cycle_momentum=False
)
generator = torch.Generator().manual_seed(22)
losses = []
for step in range(STEPS):
    features, lengths, targets, target_lengths = batch(generator)
    log_probs = model(features).transpose(0, 1)
    loss = criterion(log_probs, targets, lengths // 2, target_lengths)  # <- repeats per_label
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.05)
    optimizer.step()  # <- nesterov one_cycle
    scheduler.step()  # <- one_cycle
    losses.append(loss.item())
