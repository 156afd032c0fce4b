# SPDX-License-Identifier: Apache-2.0
"""PatchTST-like forecaster with reversible instance normalisation, OneCycle and AdamW."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)

CHANNELS, CONTEXT, HORIZON, PATCH, STRIDE, WIDTH, HEADS = 3, 32, 8, 8, 4, 16, 4
STEPS = 6


class RevIN(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.affine_weight = nn.Parameter(1 + 0.1 * torch.randn(channels))
        self.affine_bias = nn.Parameter(0.1 * torch.randn(channels))

    def normalise(self, x):
        self.mean = x.mean(1, keepdim=True).detach()
        self.std = (x.var(1, keepdim=True, unbiased=False) + self.eps).sqrt().detach()
        return (x - self.mean) / self.std * self.affine_weight + self.affine_bias

    def denormalise(self, x):
        x = (x - self.affine_bias) / (self.affine_weight + self.eps * self.eps)
        return x * self.std + self.mean


class PatchTST(nn.Module):
    def __init__(self):
        super().__init__()
        self.revin = RevIN(CHANNELS)
        self.count = (CONTEXT - PATCH) // STRIDE + 1
        self.embed = nn.Linear(PATCH, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(1, self.count, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(self.count * WIDTH, HORIZON)

    def forward(self, x):                                   # (B, L, C)
        batch = x.shape[0]
        x = self.revin.normalise(x).transpose(1, 2)         # (B, C, L)
        x = x.unfold(-1, PATCH, STRIDE)                     # (B, C, N, P)
        x = x.reshape(batch * CHANNELS, self.count, PATCH)
        x = self.encoder(self.embed(x) + self.position)
        x = self.head(x.flatten(1)).view(batch, CHANNELS, HORIZON)
        return self.revin.denormalise(x.transpose(1, 2))


model = PatchTST()
torch.save(model.state_dict(), sys.argv[1])

data_rng = torch.Generator().manual_seed(5)
time = torch.arange(200.0)
series = torch.stack([torch.sin(time / 5), 2 + torch.cos(time / 9), 0.02 * time], 1)
series = series + 0.2 * torch.randn(200, CHANNELS, generator=data_rng)

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=STEPS, pct_start=0.4)

losses = []
for step in range(STEPS):
    starts = torch.randint(0, 200 - CONTEXT - HORIZON, (6,), generator=data_rng).tolist()
    past = torch.stack([series[s:s + CONTEXT] for s in starts])
    future = torch.stack([series[s + CONTEXT:s + CONTEXT + HORIZON] for s in starts])
    loss = F.mse_loss(model(past), future)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())

print(losses)
