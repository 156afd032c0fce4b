# SPDX-License-Identifier: Apache-2.0
"""Hyena operator: implicit long filters, causal convolution by FFT, gated by short convolutions."""

import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


def fftconv(u, k, D):
    seqlen = u.shape[-1]
    fft_size = 2 * seqlen  # <- causal
    k_f = torch.fft.rfft(k, n=fft_size) / fft_size
    u_f = torch.fft.rfft(u, n=fft_size)
    y = torch.fft.irfft(u_f * k_f, n=fft_size, norm="forward")[..., :seqlen]  # <- causal
    return y + u * D.unsqueeze(-1)


class Sin(nn.Module):
    def __init__(self, dim, w=2.0):
        super().__init__()
        self.freq = nn.Parameter(w * torch.ones(1, dim))

    def forward(self, x):
        return torch.sin(self.freq * x)


class HyenaFilter(nn.Module):
    def __init__(self, d_model, seq_len, emb_dim=5, order=8):
        super().__init__()
        bands = (emb_dim - 1) // 2
        t = torch.linspace(0, 1, seq_len)[:, None]  # <- decay
        w = 2 * math.pi * torch.arange(seq_len)[:, None] / seq_len  # <- features
        f = torch.linspace(1e-4, bands - 1, bands)[None]  # <- features
        z = torch.exp(-1j * f * w)  # <- features
        self.z = torch.cat([t, z.real, z.imag], dim=-1)  # <- features
        self.t = t
        self.bias = nn.Parameter(torch.randn(d_model))
        act = Sin(order)
        self.implicit = nn.Sequential(
            nn.Linear(emb_dim, order),
            act,
            nn.Linear(order, order),
            act,
            nn.Linear(order, d_model, bias=False),
        )
        fast, slow = math.log(1e-2) / 0.3, math.log(1e-2) / 1.5
        self.deltas = torch.linspace(slow, fast, d_model)[None]  # <- decay

    def forward(self):
        h = self.implicit(self.z)
        return h * torch.exp(-self.t * self.deltas.abs())  # <- decay


class HyenaOperator(nn.Module):
    def __init__(self, d_model, l_max):
        super().__init__()
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.short_filter = nn.Conv1d(  # <- short
            3 * d_model, 3 * d_model, 3, padding=2, groups=3 * d_model
        )  # <- short
        self.filter_fn = HyenaFilter(d_model, l_max)

    def forward(self, u):
        seqlen = u.size(-2)
        u = self.in_proj(u).transpose(1, 2)
        uc = self.short_filter(u)[..., :seqlen]  # <- short
        x0, x1, v = uc.chunk(3, dim=1)
        v = v * x1
        k = self.filter_fn().transpose(0, 1)
        v = fftconv(v, k, self.filter_fn.bias)  # <- causal
        return self.out_proj((v * x0).transpose(1, 2))


class Model(nn.Module):
    def __init__(self, vocab=17, d_model=12, l_max=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, d_model)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(2)])
        self.mixers = nn.ModuleList([HyenaOperator(d_model, l_max) for _ in range(2)])
        self.head = nn.Linear(d_model, vocab)

    def forward(self, ids):
        x = self.emb(ids)
        for norm, mixer in zip(self.norms, self.mixers):
            x = x + mixer(norm(x))
        return self.head(x)


torch.manual_seed(0)
model = Model()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
gen = torch.Generator().manual_seed(13)
losses = []
for step in range(4):
    seq = torch.randint(0, 17, (3, 25), generator=gen)
    logits = model(seq[:, :-1])  # <- shift
    loss = F.cross_entropy(logits.transpose(1, 2), seq[:, 1:])  # <- shift
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
