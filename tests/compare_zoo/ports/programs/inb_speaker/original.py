# SPDX-License-Identifier: Apache-2.0
"""Speaker verification: log-mel front end, x-vector TDNN, attentive pooling, normalised cosines."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

SAMPLE_RATE, N_FFT, WIN, HOP, N_MELS = 4000, 128, 100, 40, 16


def mel_filters():
    top = 2595.0 * math.log10(1.0 + SAMPLE_RATE / 2 / 700.0)
    edges = 700.0 * (10.0 ** (torch.linspace(0.0, top, N_MELS + 2) / 2595.0) - 1.0)
    freqs = torch.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)
    slopes = edges.unsqueeze(0) - freqs.unsqueeze(1)
    width = edges[1:] - edges[:-1]
    down, up = -slopes[:, :-2] / width[:-1], slopes[:, 2:] / width[1:]
    return torch.clamp(torch.minimum(down, up), min=0.0)


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hamming_window(WIN), persistent=False)  # <- window
        self.register_buffer("fb", mel_filters(), persistent=False)

    def forward(self, wav):
        wav = F.pad(wav.unsqueeze(1), (1, 0), mode="reflect").squeeze(1)
        wav = wav[:, 1:] - 0.97 * wav[:, :-1]
        spec = torch.stft(wav, N_FFT, HOP, WIN, self.window, center=True,  # <- window
                          pad_mode="reflect", return_complex=True)  # <- window
        mel = (spec.abs() ** 2).transpose(1, 2) @ self.fb
        feats = torch.log(mel + 1e-3)
        return (feats - feats.mean(dim=1, keepdim=True)).transpose(1, 2)  # <- cmn


class TDNNBlock(nn.Module):
    def __init__(self, inp, out, kernel, dilation):
        super().__init__()
        self.conv = nn.Conv1d(inp, out, kernel, dilation=dilation)
        self.norm = nn.BatchNorm1d(out)

    def forward(self, x):
        return self.norm(F.relu(self.conv(x)))  # <- swapped


class AttentiveStatisticsPooling(nn.Module):
    def __init__(self, channels, hidden=8):
        super().__init__()
        self.tdnn = nn.Conv1d(channels, hidden, 1)
        self.conv = nn.Conv1d(hidden, channels, 1)

    def forward(self, x):
        w = torch.softmax(self.conv(torch.tanh(self.tdnn(x))), dim=2)
        mean = (w * x).sum(dim=2)
        std = torch.sqrt((w * (x - mean.unsqueeze(2)) ** 2).sum(dim=2).clamp(min=1e-8))  # <- spread
        return torch.cat([mean, std], dim=1)  # <- spread


class XVector(nn.Module):
    def __init__(self, width=24, emb=20):
        super().__init__()
        self.frontend = LogMel()
        self.blocks = nn.Sequential(
            TDNNBlock(N_MELS, width, 5, 1),
            TDNNBlock(width, width, 3, 2),
            TDNNBlock(width, width, 1, 1),
        )
        self.pool = AttentiveStatisticsPooling(width)
        self.fc = nn.Linear(2 * width, emb)

    def forward(self, wav):
        return self.fc(self.pool(self.blocks(self.frontend(wav))))


def s_norm(raw, enrol, test, cohort, top=12):
    e = F.cosine_similarity(enrol.unsqueeze(1), cohort.unsqueeze(0), dim=-1)
    t = F.cosine_similarity(test.unsqueeze(1), cohort.unsqueeze(0), dim=-1)
    e, t = e.topk(top, dim=1).values, t.topk(top, dim=1).values  # <- cohort
    left = (raw - e.mean(1)) / e.std(1)  # <- cohort
    right = (raw - t.mean(1)) / t.std(1)  # <- cohort
    return 0.5 * (left + right)


def synth(gen, n):
    t = torch.arange(1600) / SAMPLE_RATE
    f0 = 80 + 200 * torch.rand(n, 1, generator=gen)
    wav = sum(torch.sin(2 * math.pi * k * f0 * t) / k for k in (1, 2, 3))
    beat = 1 + torch.sin(2 * math.pi * 12 * torch.rand(n, 1, generator=gen) * t)
    return wav * beat + 0.5 * torch.randn(n, 1600, generator=gen)


torch.manual_seed(0)
model = XVector()
for m in model.modules():
    if isinstance(m, nn.BatchNorm1d):
        m.weight.data.uniform_(0.5, 1.5)
        m.bias.data.normal_(0, 0.3)
        m.running_mean.normal_(0.3, 0.2)
        m.running_var.uniform_(0.05, 0.8)
    elif isinstance(m, nn.Conv1d):
        m.weight.data.mul_(2.5)
torch.save(model.state_dict(), sys.argv[1])
model.eval()
g = torch.Generator().manual_seed(17)
losses = []
with torch.no_grad():
    cohort = model(synth(g, 24))
    center = cohort.mean(0)
    cohort = cohort - center
    for _ in range(4):
        enrol, test = model(synth(g, 5)) - center, model(synth(g, 5)) - center
        raw = F.cosine_similarity(enrol, test, dim=1)
        losses.append(F.softplus(-s_norm(raw, enrol, test, cohort)).mean().item())
print(losses)
