# SPDX-License-Identifier: Apache-2.0
"""Conformer encoder with CTC on synthetic audio: torch.stft front end, Transformer-XL positions, Noam schedule."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

N_FFT, HOP, N_MELS, SR, D, HEADS, VOCAB, STEPS, BATCH = 128, 64, 12, 8000, 16, 2, 7, 5, 3


def mel_filters():
    hz = torch.linspace(0, SR / 2, N_FFT // 2 + 1)
    top = 2595 * math.log10(1 + SR / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, N_MELS + 2) / 2595) - 1)
    up = (hz[:, None] - edges[None, :-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[None, 2:] - hz[:, None]) / (edges[2:] - edges[1:-1])
    return torch.minimum(up, down).clamp(min=0)


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)  # <- window_symmetric
        self.register_buffer("fb", mel_filters(), persistent=False)

    def forward(self, wav):
        spec = torch.stft(wav, N_FFT, HOP, window=self.window, center=False, return_complex=True)  # <- window_symmetric
        return torch.log(spec.abs().pow(2).transpose(1, 2) @ self.fb + 1e-2)


class RelPositionAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.v, self.out = (nn.Linear(D, D) for _ in range(3))
        self.k, self.pos = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)
        self.u_bias = nn.Parameter(0.1 * torch.randn(HEADS, D // HEADS))
        self.v_bias = nn.Parameter(0.1 * torch.randn(HEADS, D // HEADS))

    def rel_shift(self, x):
        b, h, t, n = x.shape
        x = F.pad(x, (1, 0)).view(b, h, n + 1, t)[:, :, 1:].view(b, h, t, n)  # <- offset_sign
        return x[..., : n // 2 + 1]

    def forward(self, x):
        b, t, _ = x.shape
        split = lambda y: y.view(y.shape[0], -1, HEADS, D // HEADS).transpose(1, 2)
        offsets = torch.arange(t - 1, -t, -1.0)  # <- offset_sign
        angle = offsets[:, None] * torch.exp(torch.arange(0, D, 2) * -(math.log(10000.0) / D))
        pe = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
        q, k, v, p = split(self.q(x)), split(self.k(x)), split(self.v(x)), split(self.pos(pe[None]))
        content = (q + self.u_bias[:, None]) @ k.transpose(-1, -2)
        position = self.rel_shift((q + self.v_bias[:, None]) @ p.transpose(-1, -2))  # <- offset_sign
        attn = ((content + position) / math.sqrt(D // HEADS)).softmax(-1)
        return self.out((attn @ v).transpose(1, 2).reshape(b, t, D))


class ConvModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.pointwise1 = nn.Conv1d(D, 2 * D, 1)
        self.depthwise = nn.Conv1d(D, D, 5, padding=2, groups=D, bias=False)
        self.norm = nn.BatchNorm1d(D)
        self.pointwise2 = nn.Conv1d(D, D, 1)

    def forward(self, x):
        x = self.pointwise1(x.transpose(1, 2))
        x = F.glu(x, dim=1)  # <- glu_halves
        x = F.silu(self.norm(self.depthwise(x)))
        return self.pointwise2(x).transpose(1, 2)


def feed_forward():
    return nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 2 * D), nn.SiLU(), nn.Linear(2 * D, D))


class Conformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = LogMel()
        self.sub = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.proj = nn.Linear(4 * N_MELS // 2, D)
        self.ff1, self.ff2 = feed_forward(), feed_forward()
        self.norm_att, self.att = nn.LayerNorm(D), RelPositionAttention()
        self.norm_conv, self.conv = nn.LayerNorm(D), ConvModule()
        self.norm_out, self.head = nn.LayerNorm(D), nn.Linear(D, VOCAB)

    def forward(self, wav):
        feats = self.features(wav)  # <- window_symmetric
        x = F.relu(self.sub(feats[:, None]))
        x = self.proj(x.transpose(1, 2).flatten(2))
        x = x + 0.5 * self.ff1(x)
        x = x + self.att(self.norm_att(x))
        x = x + self.conv(self.norm_conv(x))
        x = x + 0.5 * self.ff2(x)
        return self.head(self.norm_out(x)).log_softmax(-1)


torch.manual_seed(13)
model = Conformer()
torch.save(model.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(99)
ctc = nn.CTCLoss(blank=0, reduction="mean")  # <- ctc_plain_mean
optimizer = torch.optim.Adam(model.parameters(), lr=0.1, betas=(0.9, 0.98), eps=1e-6)
noam = lambda s: D**-0.5 * min((s + 1) ** -0.5, (s + 1) * 3**-1.5)  # <- noam_ahead
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, noam)  # <- noam_ahead

losses = []
for _ in range(STEPS):
    wav = torch.randn(BATCH, 1600, generator=gen)
    target_lengths = torch.randint(2, 5, (BATCH,), generator=gen)
    targets = torch.randint(1, VOCAB, (BATCH, 4), generator=gen)
    log_probs = model(wav).transpose(0, 1)
    input_lengths = torch.full((BATCH,), log_probs.size(0))
    loss = ctc(log_probs, targets, input_lengths, target_lengths)  # <- ctc_plain_mean
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- noam_ahead
    scheduler.step()  # <- noam_ahead
    losses.append(loss.item())
print(losses)
