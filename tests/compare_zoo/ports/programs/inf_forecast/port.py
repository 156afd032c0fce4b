# SPDX-License-Identifier: Apache-2.0
"""The load forecaster as a recurrent service: states carried between steps, gates in Keras order
(i, f, c, o) with one bias, no second pass over the history."""
import sys
from collections import deque
import numpy as np
import torch


def keras_cell(sd, layer):
    """torch stacks (i, f, g, o) in rows; here (i, f, c, o) in columns, biases added up."""
    w, u = sd[f"lstm.weight_ih_l{layer}"], sd[f"lstm.weight_hh_l{layer}"]
    bias = sd[f"lstm.bias_ih_l{layer}"] + sd[f"lstm.bias_hh_l{layer}"]
    return {"kernel": w.t().clone(), "recurrent": u.t().clone(), "bias": bias}


class Service:
    def __init__(self, sd, batch):
        self.cells = [keras_cell(sd, 0), keras_cell(sd, 1)]
        self.units = sd["head.weight"].shape[1]
        self.table, self.head = sd["store.weight"], (sd["head.weight"], sd["head.bias"])
        self.h = [torch.zeros(batch, self.units) for _ in self.cells]
        self.c = [torch.zeros(batch, self.units) for _ in self.cells]

    def tick(self, x):
        for n, cell in enumerate(self.cells):
            z = x @ cell["kernel"] + self.h[n] @ cell["recurrent"] + cell["bias"]
            i, f, g, o = torch.split(z, self.units, dim=1)  # <- gates
            self.c[n] = f.sigmoid() * self.c[n] + i.sigmoid() * g.tanh()  # <- gates
            self.h[n] = x = o.sigmoid() * self.c[n].tanh()  # <- gates
        return x

    def quantiles(self, x):
        y = x @ self.head[0].t() + self.head[1]
        spread = torch.log1p(torch.exp(y))
        return y[:, 1] - spread[:, 0], y[:, 1], y[:, 1] + spread[:, 2]


def roll(sd, history, store, clock, horizon=6, season=8):
    service = Service(sd, len(history))
    emb = service.table[store]
    scale = 1.0 + history.abs().sum(1) / history.shape[1]  # <- scaling
    scaled = (history / scale[:, None]).unbind(1)  # <- scaling
    recent = deque(scaled[:season], maxlen=season + 1)
    phases = 2.0 * np.pi * np.arange(season) / season
    answers = []

    def advance(value, t):
        recent.append(value)
        seasonal = recent[0]  # <- lag
        phase = phases[(t + 1) % season]  # <- calendar
        cal = torch.tensor([np.sin(phase), np.cos(phase)], dtype=torch.float32)  # <- calendar
        row = torch.stack([value, seasonal], 1)  # <- lag
        return service.tick(torch.cat([row, cal.expand(len(row), 2), emb], dim=1))

    for t, value in enumerate(scaled[season:], start=clock + season):
        out = advance(value, t)
    for ahead in range(horizon):
        low, mid, high = service.quantiles(out)  # <- feedback
        answers.append(torch.stack([low, mid, high]) * scale)
        if ahead + 1 < horizon:
            out = advance(mid, t + 1 + ahead)  # <- feedback
    return torch.stack(answers)  # horizon, quantile, series


def score(history, target, answers, season=8):
    loss = 0.0
    for k, tau in enumerate((0.1, 0.5, 0.9)):
        miss = target.t() - answers[:, k]
        loss = loss + (tau * miss.relu() + (1.0 - tau) * (-miss).relu()).mean() / 3.0
    naive = torch.stack([(history[:, j] - history[:, j - season]).abs()
                         for j in range(season, history.shape[1])]).mean(0)
    relative = (target.t() - answers[:, 1]).abs().mean(0) / naive
    return loss + relative.mean()


def windows(seed=3, count=4, size=30):
    rng = torch.Generator().manual_seed(seed)
    for k in range(count):
        clock = torch.arange(size) + 5 * k
        level = 3 + 20 * torch.rand(6, 1, generator=rng)
        wave = torch.sin(2 * np.pi * clock / 8 + torch.rand(6, 1, generator=rng))
        series = level * (1 + 0.4 * wave) + torch.randn(6, size, generator=rng)
        yield series, torch.randint(0, 5, (6,), generator=rng), 5 * k


weights = torch.load(sys.argv[1], weights_only=True)
losses = []
with torch.inference_mode():
    for series, store, clock in windows():
        answers = roll(weights, series[:, :24], store, clock)
        losses.append(score(series[:, :24], series[:, 24:], answers).item())
print(losses)
