# SPDX-License-Identifier: Apache-2.0
"""The speech model with its positions' weight normed by hand, masks by torch.where, own cosine."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

CHANNELS, DIM, HEADS, LETTERS, NEGATIVES, CODES = 8, 16, 2, 6, 3, 5


class FeatureExtractor(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv1d(1, CHANNELS, 10, stride=5, bias=False)
        self.norm0 = nn.GroupNorm(CHANNELS, CHANNELS)
        self.conv1 = nn.Conv1d(CHANNELS, CHANNELS, 3, stride=2, bias=False)

    def forward(self, wave):
        x = F.gelu(self.norm0(self.conv0(wave[:, None])))  # <- group_norm
        return F.gelu(self.conv1(x)).transpose(1, 2)  # <- stride


class PositionalConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.g, self.v = (
            nn.Parameter(torch.ones(1, 1, 8)),
            nn.Parameter(torch.ones(DIM, DIM // 4, 8)),
        )
        self.bias = nn.Parameter(torch.zeros(DIM))

    def forward(self, x):
        weight = self.g * self.v / self.v.norm(dim=(0, 1), keepdim=True)  # <- weight_norm
        y = F.conv1d(x.transpose(1, 2), weight, self.bias, padding=4, groups=4)  # <- weight_norm
        return x + F.gelu(y[:, :, :-1]).transpose(1, 2)  # <- same_pad


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.fc1, self.fc2 = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x):
        def heads(y):
            return y.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        y = F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)))
        x = self.norm1(x + self.o(y.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.fc2(F.gelu(self.fc1(x))))


class Wav2Vec(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = FeatureExtractor()
        self.feature_norm, self.project = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, DIM)
        self.mask_vector = nn.Parameter(torch.rand(DIM))
        self.positions, self.layer = PositionalConv(), Layer()
        self.codes = nn.Parameter(torch.randn(CODES, DIM))
        self.choose = nn.Linear(CHANNELS, CODES)
        self.letters = nn.Linear(DIM, LETTERS)

    def forward(self, wave, masked, noise):
        z = self.feature_norm(self.features(wave))
        x = self.project(z)
        x = torch.where(masked[..., None], self.mask_vector, x)  # <- masking
        context = self.layer(self.positions(x))
        soft = ((self.choose(z) + noise) / 0.5).softmax(-1)  # <- temperature
        hard = F.one_hot(soft.argmax(-1), CODES).float() + soft - soft.detach()  # <- straight
        return context, hard @ self.codes  # <- straight


def contrast(context, targets, masked, negatives):
    c, q = context[masked], targets[masked]
    candidates = torch.cat([q[:, None], q[negatives]], dim=1)  # <- cosine
    sizes = c[:, None].norm(dim=-1) * candidates.norm(dim=-1)  # <- cosine
    logits = (c[:, None] * candidates).sum(-1) / sizes / 0.1  # <- cosine
    return F.cross_entropy(logits, torch.zeros(len(c), dtype=torch.long))


model = Wav2Vec()
state = torch.load(sys.argv[1])
conv = "positions.conv."
state["positions.g"] = state.pop(conv + "parametrizations.weight.original0")
state["positions.v"] = state.pop(conv + "parametrizations.weight.original1")
state["positions.bias"] = state.pop(conv + "bias")
model.load_state_dict(state)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
rng = np.random.default_rng(15)
losses = []
for _ in range(2):
    wave = torch.from_numpy(rng.standard_normal((2, 150), dtype=np.float32))
    masked = torch.from_numpy(rng.random((2, 14)) < 0.5)
    count = int(masked.sum())
    negatives = torch.from_numpy(rng.integers(0, count, (count, NEGATIVES)))
    noise = torch.from_numpy(rng.gumbel(size=(2, 14, CODES)).astype(np.float32))
    text = torch.from_numpy(rng.integers(1, LETTERS, (2, 4)))
    context, targets = model(wave, masked, noise)
    log_probs = model.letters(context).log_softmax(-1).transpose(0, 1)
    lengths = torch.full((2,), 14), torch.full((2,), 4)
    spoken = F.ctc_loss(log_probs, text, *lengths, blank=0, reduction="mean")  # <- ctc
    loss = contrast(context, targets, masked, negatives) + 0.3 * spoken  # <- ctc
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
