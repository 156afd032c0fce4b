# SPDX-License-Identifier: Apache-2.0
"""Credit-risk classifier on a table: embeddings and an MLP, temperature scaling, calibration."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

CARDINALITIES = [5, 9, 4]
NUMERIC, CLASSES, BINS = 4, 3, 8


class NumericPreprocessor(nn.Module):
    """log1p of the skewed columns, standardisation, missing values at the mean plus a flag."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.rand(NUMERIC) + 0.5)
        self.register_buffer("std", torch.rand(NUMERIC) + 0.5)

    def forward(self, x):
        missing = torch.isnan(x)
        x = torch.cat([x[:, :2], torch.log1p(x[:, 2:])], dim=1)
        x = torch.where(missing, self.mean, x)  # <- impute
        x = (x - self.mean) / self.std  # <- impute
        return torch.cat([x, missing.float()], dim=1)


class TabularModel(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.numeric = NumericPreprocessor()
        self.embeds = nn.ModuleList(nn.Embedding(n + 1, min(6, n // 2 + 1)) for n in CARDINALITIES)
        width = 2 * NUMERIC + sum(e.embedding_dim for e in self.embeds)
        self.first = nn.Sequential(nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.Mish())
        self.second = nn.Sequential(nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.Mish())
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, numeric, categorical):
        parts = [self.numeric(numeric)]
        for column, (embed, n) in enumerate(zip(self.embeds, CARDINALITIES)):
            code = categorical[:, column]
            code = torch.where((code >= 0) & (code < n), code + 1, 0)  # zero: unknown  # <- unknown
            parts.append(embed(code))  # <- unknown
        x = self.first(torch.cat(parts, dim=1))  # <- activation
        x = x + self.second(x)  # <- activation
        return self.head(x)


def fit_temperature(logits, labels):
    """Temperature of least NLL: bisection on the sign of the derivative by the inverse."""
    logits = logits.double()
    low, high = 0.01, 20.0
    for _ in range(60):
        beta = (low + high) / 2
        probs = torch.softmax(beta * logits, dim=1)
        slope = (probs * logits).sum(1).mean() - logits[torch.arange(len(labels)), labels].mean()
        low, high = (beta, high) if slope < 0 else (low, beta)
    return 1.0 / beta


class ExpectedCalibrationError(nn.Module):
    def forward(self, probs, labels):
        edges = torch.linspace(0, 1, BINS + 1)
        conf, pred = probs.max(1)
        correct = pred.eq(labels).double()
        ece = 0.0
        for lo, hi in zip(edges[:-1], edges[1:]):
            inside = (conf > lo) & (conf <= hi)
            if inside.any():
                gap = (conf[inside].mean() - correct[inside].mean()).abs()
                ece = ece + gap * inside.double().mean()  # <- binweight
        return ece  # <- binweight


def make_table(rows, gen):
    numeric = torch.rand(rows, NUMERIC, generator=gen) * torch.tensor([2.0, 3.0, 8.0, 20.0])
    numeric[torch.rand(rows, NUMERIC, generator=gen) < 0.15] = float("nan")
    categorical = torch.stack(
        [torch.randint(-1, n + 1, (rows,), generator=gen) for n in CARDINALITIES], dim=1
    )
    return numeric, categorical, torch.rand(rows, generator=gen)


torch.manual_seed(0)
model = TabularModel()
for module in model.modules():
    if isinstance(module, nn.BatchNorm1d):
        nn.init.normal_(module.weight, 1.0, 0.2)
        nn.init.normal_(module.bias, 0.0, 0.3)
        nn.init.normal_(module.running_mean, 0.0, 0.3)
        nn.init.uniform_(module.running_var, 0.2, 1.0)
nn.init.normal_(model.head.weight, 0.0, 0.5)
model.eval()
gen = torch.Generator().manual_seed(30)
tables = [make_table(80, gen) for _ in range(5)]
with torch.no_grad():  # labels from a softened model
    tables = [(n, c, (torch.softmax(0.4 * model(n, c), 1).cumsum(1) < u[:, None]).sum(1))
              for n, c, u in tables]
tables = [(n, c, y.clamp(max=CLASSES - 1)) for n, c, y in tables]
torch.save({"state": model.state_dict(), "tables": tables}, sys.argv[1])

losses = []
with torch.no_grad():
    numeric, categorical, labels = tables[0]
    temperature = fit_temperature(model(numeric, categorical), labels)  # <- temperature
    for numeric, categorical, labels in tables[1:]:
        logits = model(numeric, categorical).double() / temperature  # <- temperature
        probs = logits.softmax(1)
        brier = ((probs - F.one_hot(labels, CLASSES)) ** 2).sum(1).mean()
        losses.append((brier + ExpectedCalibrationError()(probs, labels)).item())
print(losses)
