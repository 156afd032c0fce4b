# SPDX-License-Identifier: Apache-2.0
"""Session recommender (self-attention over clicks, left padding); hit rate at 5 per batch."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(38)
ITEMS, LEN, D = 40, 10, 16


class SessionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(ITEMS + 1, D, padding_idx=0)
        self.recency = nn.Embedding(LEN, D)
        self.q, self.k, self.v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.norm = nn.LayerNorm(D)
        self.ff = nn.Sequential(nn.Linear(D, 32), nn.SiLU(), nn.Linear(32, D))

    def forward(self, clicks):
        age = torch.arange(LEN - 1, -1, -1)
        x = self.item(clicks) + self.recency(age)
        att = (self.q(x[:, -1:]) * self.k(x)).sum(-1) / D**0.5
        att = att.masked_fill(clicks == 0, float("-inf")).softmax(1)
        h = self.norm(x[:, -1] + (att[..., None] * self.v(x)).sum(1))
        h = h + self.ff(h)
        return h @ self.item.weight[1:].T


rec = SessionModel()
nn.init.uniform_(rec.norm.weight, 0.5, 1.5)
nn.init.normal_(rec.norm.bias, std=0.3)
for lin in (rec.q, rec.k, rec.v):
    nn.init.normal_(lin.weight, std=0.3)
torch.save(rec.state_dict(), sys.argv[1])
rec.eval()

g = torch.Generator().manual_seed(128)
losses = []
with torch.no_grad():
    for b in range(4):
        clicks = torch.randint(1, ITEMS + 1, (8, LEN), generator=g)
        real = torch.randint(2, LEN + 1, (8, 1), generator=g)
        target = torch.randint(1, ITEMS + 1, (8,), generator=g)
        clicks[torch.arange(LEN) < LEN - real] = 0
        top = rec(clicks).topk(5, 1).indices + 1
        losses.append((top == target[:, None]).any(1).float().mean().item())
        print(f"batch {b}: hit@5 {losses[-1]:.3f}")
print(losses)
