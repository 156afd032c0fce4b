# SPDX-License-Identifier: Apache-2.0
"""A small speech recogniser: log-mel features, strided convolutions, a recurrent layer and CTC."""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

RATE, N_FFT, HOP, N_MELS = 8000, 128, 64, 12
VOCAB, BATCH, SAMPLES = 7, 3, 2048


def mel_filterbank(n_freqs, f_min, f_max, n_mels, sample_rate):
    """HTK triangles, (n_freqs, n_mels)."""
    all_freqs = torch.linspace(0, sample_rate // 2, n_freqs)
    m_min = 2595.0 * math.log10(1.0 + f_min / 700.0)
    m_max = 2595.0 * math.log10(1.0 + f_max / 700.0)
    m_pts = torch.linspace(m_min, m_max, n_mels + 2)
    f_pts = 700.0 * (10.0 ** (m_pts / 2595.0) - 1.0)
    f_diff = f_pts[1:] - f_pts[:-1]
    slopes = f_pts.unsqueeze(0) - all_freqs.unsqueeze(1)
    down_slopes = -slopes[:, :-2] / f_diff[:-1]
    up_slopes = slopes[:, 2:] / f_diff[1:]
    return torch.clamp(torch.min(down_slopes, up_slopes), min=0.0)


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT))  # <- window
        self.register_buffer("fb", mel_filterbank(N_FFT // 2 + 1, 20.0, 4000.0, N_MELS, RATE))

    def forward(self, wav, lengths):
        spec = torch.stft(  # <- window edges
            wav, N_FFT, HOP, window=self.window, center=True, return_complex=True
        )
        power = spec.abs().pow(2.0)
        mel = torch.matmul(power.transpose(1, 2), self.fb)
        x = torch.log(mel + 1e-6)  # <- floor
        frames = lengths // HOP + 1
        mask = torch.arange(x.size(1))[None, :] < frames[:, None]
        mask = mask.unsqueeze(-1).float()
        count = mask.sum(dim=1, keepdim=True)
        mean = (x * mask).sum(dim=1, keepdim=True) / count  # <- padded
        var = ((x - mean) ** 2 * mask).sum(dim=1, keepdim=True) / (count - 1)  # <- padded
        x = (x - mean) / (var.sqrt() + 1e-5) * mask  # <- padded
        return x, frames


class Recognizer(nn.Module):
    def __init__(self, hidden=10):
        super().__init__()
        self.features = LogMel()
        self.conv = nn.Conv1d(N_MELS, 12, kernel_size=3, stride=2, padding=1)
        self.depthwise = nn.Conv1d(12, 12, kernel_size=5, padding=2, groups=12)
        self.pointwise = nn.Conv1d(12, 12, kernel_size=1)
        self.norm = nn.LayerNorm(12)
        self.rnn = nn.GRU(12, hidden, batch_first=True, bidirectional=True)  # <- reset
        self.out = nn.Linear(2 * hidden, VOCAB)

    def forward(self, wav, lengths):
        x, frames = self.features(wav, lengths)
        x = F.silu(self.conv(x.transpose(1, 2)))
        x = x + self.pointwise(F.silu(self.depthwise(x)))
        x = self.norm(x.transpose(1, 2))
        frames = (frames - 1) // 2 + 1
        packed = nn.utils.rnn.pack_padded_sequence(
            x, frames, batch_first=True, enforce_sorted=False
        )
        packed, _ = self.rnn(packed)  # <- reset
        x, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        return F.log_softmax(self.out(x), dim=-1), frames


torch.manual_seed(8)
model = Recognizer()
state = {k: v for k, v in model.state_dict().items() if not k.startswith("features")}
torch.save({"state_dict": state}, sys.argv[1])
criterion = nn.CTCLoss(blank=0, reduction="mean")  # <- repeats per_length
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
generator = torch.Generator().manual_seed(9)
losses = []
for _ in range(3):
    time = torch.arange(SAMPLES) / RATE
    pitch = 200 + 1500 * torch.rand(BATCH, 4, 1, generator=generator)
    wav = torch.sin(2 * math.pi * pitch * time).mean(dim=1)
    wav = wav + 0.05 * torch.randn(BATCH, SAMPLES, generator=generator)
    lengths = torch.tensor([SAMPLES, 1600, 1230])
    wav = wav * (torch.arange(SAMPLES) < lengths[:, None])
    targets = torch.randint(1, VOCAB, (BATCH, 5), generator=generator)
    targets[:, 2] = targets[:, 1]
    target_lengths = torch.tensor([5, 4, 3])
    log_probs, frames = model(wav, lengths)
    loss = criterion(  # <- repeats per_length
        log_probs.transpose(0, 1), targets, frames, target_lengths
    )
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.5)  # <- clip
    optimizer.step()  # <- clip
    losses.append(loss.item())
