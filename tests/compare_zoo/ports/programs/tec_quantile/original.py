# SPDX-License-Identifier: Apache-2.0
"""Demand forecasting: variable selection, LSTM, gated skips, interpretable attention, quantiles."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
D, HEADS, HIST, HORIZON, N_VARS = 8, 2, 9, 4, 3
QUANTILES = (0.1, 0.5, 0.9)


class GateAddNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, 2 * d)
        self.norm = nn.LayerNorm(d)

    def forward(self, x, skip):
        return self.norm(F.glu(self.fc(x), dim=-1) + skip)  # <- gate_halves


class GRN(nn.Module):
    def __init__(self, nin, nout):
        super().__init__()
        self.skip = nn.Linear(nin, nout) if nin != nout else nn.Identity()
        self.fc1, self.fc2 = nn.Linear(nin, nout), nn.Linear(nout, nout)
        self.gate = GateAddNorm(nout)

    def forward(self, x):
        return self.gate(self.fc2(F.elu(self.fc1(x))), self.skip(x))


class InterpretableAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.ModuleList([nn.Linear(D, D // HEADS, bias=False) for _ in range(HEADS)])
        self.k = nn.ModuleList([nn.Linear(D, D // HEADS, bias=False) for _ in range(HEADS)])
        self.v = nn.Linear(D, D // HEADS)
        self.out = nn.Linear(D // HEADS, D, bias=False)

    def forward(self, x):
        t = x.size(1)
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
        heads = []
        for q, k in zip(self.q, self.k):
            score = torch.bmm(q(x), k(x).transpose(1, 2)) / (D // HEADS) ** 0.5
            heads.append(torch.bmm(score.masked_fill(mask, -1e9).softmax(-1), self.v(x)))
        return self.out(torch.stack(heads).mean(0))  # <- head_average


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.ModuleList([nn.Linear(1, D) for _ in range(N_VARS)])
        self.select = GRN(N_VARS * D, N_VARS)
        self.lstm = nn.LSTM(D, D, batch_first=True)
        self.post_lstm = GateAddNorm(D)
        self.attn = InterpretableAttention()
        self.post_attn = GateAddNorm(D)
        self.final = GRN(D, D)
        self.head = nn.Linear(D, len(QUANTILES))

    def forward(self, x):
        emb = torch.stack([e(x[..., i : i + 1]) for i, e in enumerate(self.embed)], -1)
        weights = self.select(emb.flatten(2)).softmax(-1)
        z = (emb * weights.unsqueeze(2)).sum(-1)
        seq = self.post_lstm(self.lstm(z)[0], z)
        ctx = self.post_attn(self.attn(seq), seq)
        return self.head(self.final(ctx))[:, -HORIZON:]


def quantile_loss(pred, y):
    total = 0
    for i, q in enumerate(QUANTILES):
        err = y - pred[..., i]  # <- pinball_side
        total = total + torch.max((q - 1) * err, q * err)  # <- pinball_side
    return total.mean()


def make_batch(gen, n=6):
    t = torch.arange(HIST + HORIZON).float()
    level = 1 + 4 * torch.rand(n, 1, generator=gen)
    sales = level * (1 + 0.5 * torch.sin(t * (0.4 + torch.rand(n, 1, generator=gen))))
    sales = sales + 0.3 * torch.randn(n, HIST + HORIZON, generator=gen)
    price = torch.randn(n, HIST + HORIZON, generator=gen)
    scale = 1.0 + sales[:, :HIST].abs().mean(1, keepdim=True)  # <- series_scale
    sales = sales / scale  # <- series_scale
    past = torch.cat([sales[:, :HIST], torch.zeros(n, HORIZON)], 1)
    x = torch.stack([past, price, (t / HIST).expand(n, -1)], -1)
    return x, sales[:, HIST:]


model = Forecaster()
torch.save(model.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(64)
opt = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.95), eps=1e-5)
WARMUP = 3
sched = torch.optim.lr_scheduler.LambdaLR(  # <- warmup_index
    opt, lambda s: 0.02 * min((s + 1) ** -0.5, (s + 1) * WARMUP**-1.5)
)  # <- warmup_index
losses = []
for step in range(5):
    x, y = make_batch(gen)
    loss = quantile_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- warmup_index
    sched.step()  # <- warmup_index
    losses.append(loss.item())
print(losses)
