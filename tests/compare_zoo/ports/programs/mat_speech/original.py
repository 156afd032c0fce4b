# SPDX-License-Identifier: Apache-2.0
"""Tiny acoustic model: log-mel features from torch.stft, conv encoder, BiGRU, CTC."""

import math
import sys

import torch
import torch.nn as nn

SR, N_FFT, HOP, N_MELS, VOCAB = 8000, 64, 32, 10, 6


def mel_bank():
    def to_mel(f):
        return 2595.0 * math.log10(1.0 + f / 700.0)

    def to_hz(m):
        return 700.0 * (10.0 ** (m / 2595.0) - 1.0)

    top = to_mel(SR / 2)
    edges = [to_hz(top * i / (N_MELS + 1)) for i in range(N_MELS + 2)]
    bank = torch.zeros(N_MELS, N_FFT // 2 + 1)
    for m in range(N_MELS):
        lo, mid, hi = edges[m : m + 3]
        for k in range(N_FFT // 2 + 1):
            f = k * SR / N_FFT
            bank[m, k] = max(0.0, min((f - lo) / (mid - lo), (hi - f) / (hi - mid)))
    return bank


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)  # <- window
        self.register_buffer("bank", mel_bank(), persistent=False)
        self.preemph = 0.97

    def forward(self, wav):
        wav = torch.cat([wav[:, :1], wav[:, 1:] - self.preemph * wav[:, :-1]], dim=1)
        spec = torch.stft(
            wav,
            N_FFT,
            HOP,
            window=self.window,
            center=True,  # <- window
            pad_mode="reflect",
            return_complex=True,
        )
        power = spec.abs() ** 2
        logmel = torch.log(self.bank @ power + 1e-3)
        mean = logmel.mean(dim=2, keepdim=True)  # <- feature_axis
        std = logmel.std(dim=2, keepdim=True)  # <- feature_axis
        return (logmel - mean) / (std + 1e-3)  # <- feature_axis


class Encoder(nn.Module):
    def __init__(self, hidden=6):
        super().__init__()
        self.frontend = LogMel()
        self.conv = nn.Conv1d(N_MELS, 12, kernel_size=3, stride=1, padding=1)
        self.norm = nn.LayerNorm(12)
        self.gru = nn.GRU(12, hidden, batch_first=True, bidirectional=True)  # <- backward_direction
        self.ctc_head = nn.Linear(2 * hidden, VOCAB)

    def forward(self, wav):
        x = self.conv(self.frontend(wav)).transpose(1, 2)
        x = nn.functional.silu(self.norm(x))
        x, _ = self.gru(x)  # <- backward_direction
        return self.ctc_head(x).log_softmax(-1)


def fake_corpus(n_steps, batch=3, frames=14):
    gen = torch.Generator().manual_seed(31)
    for _ in range(n_steps):
        t = torch.arange(frames * HOP) / SR
        pitch = 200 + 1500 * torch.rand(batch, 1, generator=gen)
        noise = torch.randn(batch, frames * HOP, generator=gen)
        wav = torch.sin(2 * math.pi * pitch * t) + 0.3 * noise
        text = torch.randint(1, VOCAB, (batch, 4), generator=gen)
        text[0, 2] = text[0, 1]
        lengths = torch.tensor([4, 3, 2])
        yield wav, text, lengths


torch.manual_seed(0)
model = Encoder()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = []
for wav, text, lengths in fake_corpus(4):
    logp = model(wav).transpose(0, 1)
    frames = torch.full((wav.shape[0],), logp.shape[0], dtype=torch.long)
    loss = nn.functional.ctc_loss(  # <- repeat_skip
        logp, text, frames, lengths, blank=0, reduction="mean"
    )
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- global_clip
    optimizer.step()
    losses.append(loss.item())
print(losses)
