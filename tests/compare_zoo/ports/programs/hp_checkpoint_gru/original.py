# SPDX-License-Identifier: Apache-2.0
"""A bidirectional GRU with attention over its states, for forecasting several series; nothing checkpointed."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Forecaster(nn.Module):
    def __init__(self, inputs=5, hidden=12, horizon=4, heads=4):
        super().__init__()
        self.embed = nn.Linear(inputs, hidden)
        self.rnn = nn.GRU(hidden, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * hidden)
        self.attn = nn.MultiheadAttention(2 * hidden, heads, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(2 * hidden, 32), nn.SiLU(), nn.Linear(32, 2 * hidden))
        self.query = nn.Parameter(torch.randn(horizon, 2 * hidden) * 0.3)
        self.readout = nn.Linear(2 * hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(torch.tanh(self.embed(x)))
        h = self.norm(h)
        q = self.query.unsqueeze(0).expand(x.size(0), -1, -1)
        a, _ = self.attn(q, h, h, need_weights=False)
        z = q + a
        z = z + self.ffn(z)
        return self.readout(z).squeeze(-1)


def series(gen, n=12, length=20, horizon=4):
    t = torch.arange(length + horizon)
    freq = torch.rand(n, 5, generator=gen) * 0.5 + 0.1
    phase = torch.rand(n, 5, generator=gen) * 6.28
    full = torch.sin(freq[:, None] * t[None, :, None] + phase[:, None])
    full = full + 0.1 * torch.randn(full.shape, generator=gen)
    return full[:, :length], full[:, length:].sum(-1)


torch.manual_seed(81)
model = Forecaster()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.95, eps=1e-4, momentum=0.5)
gen = torch.Generator().manual_seed(82)
losses = []
for step in range(5):
    x, y = series(gen)
    opt.zero_grad()
    loss = F.smooth_l1_loss(model(x), y, beta=0.5)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    losses.append(loss.item())
print(losses)
