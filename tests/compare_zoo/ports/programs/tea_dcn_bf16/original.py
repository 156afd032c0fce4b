# SPDX-License-Identifier: Apache-2.0
"""A deep and cross network (DCN-v2, low-rank experts) for ranking advertisements, trained under
autocast to bfloat16; row-wise Adagrad on the tables, Adam elsewhere.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIELDS, EMB, COUNTS, RANK, EXPERTS, LAYERS, BATCH = (11, 7, 17), 6, 4, 5, 2, 2, 24
WIDTH = len(FIELDS) * EMB + COUNTS


class LowRankExpert(nn.Module):
    def __init__(self):
        super().__init__()
        self.v = nn.Linear(WIDTH, RANK, bias=False)
        self.c = nn.Linear(RANK, RANK, bias=False)
        self.u = nn.Linear(RANK, WIDTH)

    def forward(self, x0, x):
        low = torch.tanh(self.c(torch.tanh(self.v(x))))
        return x0 * self.u(low)  # <- crossed


class CrossLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([LowRankExpert() for _ in range(EXPERTS)])
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)

    def forward(self, x0, x):
        scores = self.gate(x).float()
        share = torch.softmax(scores, dim=-1)  # <- gated
        outputs = torch.stack([expert(x0, x) for expert in self.experts], dim=-1)
        return x + (outputs * share.unsqueeze(1)).sum(-1)  # <- gated


class DCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(n, EMB) for n in FIELDS])
        self.cross = nn.ModuleList([CrossLayer() for _ in range(LAYERS)])
        self.deep = nn.Sequential(nn.Linear(WIDTH, 20), nn.ReLU(), nn.Linear(20, 12), nn.ReLU())
        self.head = nn.Linear(WIDTH + 12, 1)

    def forward(self, ids, counts):
        parts = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        x0 = torch.cat([*parts, torch.log1p(counts)], dim=1)  # <- logged
        x = x0
        for layer in self.cross:
            x = layer(x0, x)
        return self.head(torch.cat([x, self.deep(x0).float()], dim=1)).squeeze(1)


class RowWiseAdagrad(torch.optim.Optimizer):
    """One sum a row: the mean of its squared gradient."""

    def __init__(self, params, lr, eps):
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                total = state.setdefault("sum", torch.zeros(len(p), 1))
                total.add_(p.grad.pow(2).mean(dim=1, keepdim=True))  # <- rowwise
                p.addcdiv_(p.grad, total.sqrt() + group["eps"], value=-group["lr"])  # <- rowwise


def log_of_impressions(generator):
    columns = [torch.randint(0, n, (BATCH, 1), generator=generator) for n in FIELDS]
    counts = torch.randint(0, 30, (BATCH, COUNTS), generator=generator).float()
    return torch.cat(columns, 1), counts, torch.rand(BATCH, generator=generator).round()


torch.manual_seed(81)
model = DCN()
torch.save(model.state_dict(), sys.argv[1])
sparse = RowWiseAdagrad(model.tables.parameters(), lr=0.05, eps=1e-3)
rest = [p for name, p in model.named_parameters() if not name.startswith("tables")]
dense = torch.optim.Adam(rest, lr=0.01, eps=1e-3)
generator = torch.Generator().manual_seed(82)
losses = []
for _ in range(4):
    ids, counts, clicked = log_of_impressions(generator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids, counts)
    loss = F.binary_cross_entropy_with_logits(logits.float(), clicked)  # <- lossy
    for optimizer in (sparse, dense):
        optimizer.zero_grad()
    loss.backward()
    for optimizer in (sparse, dense):
        optimizer.step()
    losses.append(loss.item())
