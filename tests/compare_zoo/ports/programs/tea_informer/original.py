# SPDX-License-Identifier: Apache-2.0
"""A forecaster in the manner of Informer: circular token convolution, sparse attention on sampled
keys, distilling by convolution and pooling, windows standardised one by one.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

SERIES, MARKS, D, HEADS, LONG, AHEAD, BATCH, KEYS, QUERIES = 3, 2, 16, 2, 12, 4, 5, 5, 4


class DataEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Conv1d(
            SERIES, D, 3, padding=1, padding_mode="circular", bias=False
        )  # <- circular
        self.time = nn.Linear(MARKS, D, bias=False)
        pe, position = torch.zeros(LONG, D), torch.arange(LONG).unsqueeze(1)
        div = (torch.arange(0, D, 2).float() * -(math.log(10000.0) / D)).exp()
        pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div), torch.cos(position * div)
        self.register_buffer("pe", pe, persistent=False)

    def forward(self, x, marks):
        tokens = self.token(x.permute(0, 2, 1)).transpose(1, 2)  # <- circular
        return tokens + self.time(marks) + self.pe


class ProbAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(D, D) for _ in range(3))
        self.out = nn.Linear(D, D)

    def forward(self, x, sample):
        b, length, _ = x.shape
        q, k, v = (
            f(x).view(b, length, HEADS, -1).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        # each query's scores on its sample of keys
        k_sample = k[:, :, sample, :]
        q_k = torch.matmul(q.unsqueeze(-2), k_sample.transpose(-2, -1)).squeeze(-2)
        measure = q_k.max(-1).values - q_k.sum(-1) / length  # <- measure
        top = measure.topk(min(QUERIES, length), sorted=False).indices  # <- measure
        rows = torch.arange(b)[:, None, None], torch.arange(HEADS)[None, :, None]
        q_top = q[rows[0], rows[1], top]
        attn = torch.softmax(q_top @ k.transpose(-2, -1) / math.sqrt(D // HEADS), dim=-1)
        context = v.mean(dim=-2, keepdim=True).expand(-1, -1, length, -1).clone()  # <- lazy
        context[rows[0], rows[1], top] = attn @ v  # <- measure
        return self.out(context.transpose(1, 2).reshape(b, length, D))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = ProbAttention()
        self.conv1, self.conv2 = nn.Conv1d(D, 24, 1), nn.Conv1d(24, D, 1)
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x, sample):
        x = self.norm1(x + self.attention(x, sample))
        y = self.conv2(F.gelu(self.conv1(x.transpose(-1, 1)))).transpose(-1, 1)
        return self.norm2(x + y)


class Distil(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(D, D, 3, padding=1, padding_mode="circular")  # <- circular
        self.pool = nn.MaxPool1d(3, stride=2, padding=1)  # <- pooled

    def forward(self, x):
        return self.pool(F.elu(self.conv(x.transpose(1, 2)))).transpose(1, 2)  # <- pooled circular


class Informer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = DataEmbedding()
        self.first, self.distil, self.second = EncoderLayer(), Distil(), EncoderLayer()
        self.projection = nn.Linear(LONG // 2 * D, AHEAD * SERIES)

    def forward(self, x, marks, samples):
        mean = x.mean(1, keepdim=True)
        std = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()  # <- spread
        y = self.embedding((x - mean) / std, marks)  # <- spread
        y = self.second(self.distil(self.first(y, samples[0])), samples[1])
        return self.projection(y.flatten(1)).view(-1, AHEAD, SERIES) * std + mean


torch.manual_seed(121)
model = Informer()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.NAdam(model.parameters(), lr=5e-3, eps=1e-3)
generator = torch.Generator().manual_seed(122)
losses = []
for _ in range(4):
    series = torch.randn(BATCH, LONG + AHEAD, SERIES, generator=generator).cumsum(1)
    start = torch.randint(0, 168, (BATCH, 1), generator=generator)
    hour = start + torch.arange(LONG)
    marks = torch.stack([hour % 24 / 23 - 0.5, hour // 24 % 7 / 6 - 0.5], dim=2)
    samples = [torch.randint(0, n, (n, KEYS), generator=generator) for n in (LONG, LONG // 2)]
    forecast = model(series[:, :LONG], marks, samples)
    loss = F.huber_loss(forecast, series[:, LONG:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
